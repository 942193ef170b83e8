package httpapi

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	viewerfiles "github.com/swaggest/swgui/v5/static"
	"github.com/vearutop/statigz"
)

// viewerFiles are those of Swagger UI, compressed as they are stored.
var viewerFiles = statigz.FileServer(viewerfiles.FS)

// viewerPolicy lets Swagger UI run, style its elements and call this server, and nothing beyond it.
var viewerPolicy = []string{"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}

// viewer shows the contract that is at openapi.json beside it, with an embedded Swagger UI that loads nothing from
// elsewhere. It is served at a path that ends with docs, and its files below that.
type viewer struct{ page, script static }

// newViewer panics where its page is broken.
func newViewer(title string, problems bool) viewer {
	var page bytes.Buffer
	data := struct {
		Title    string
		Problems bool // whether the list of problem codes is beside it
	}{title, problems}
	if err := pages.ExecuteTemplate(&page, "viewer.html", data); err != nil {
		panic(err)
	}
	return viewer{
		page:   static{contentType: htmlType, policy: viewerPolicy, body: page.Bytes()},
		script: static{contentType: scriptType, body: pageFile("viewer.js")},
	}
}

// serveFile serves one of the files that the page loads.
func (v viewer) serveFile(c echo.Context) error {
	name := c.Param("file")
	if name == "viewer.js" {
		return v.script.serve(c)
	}
	request := c.Request().Clone(c.Request().Context())
	request.URL.Path = "/" + name
	if !viewerFiles.Found(request) || strings.HasSuffix(name, ".gz") {
		return newProblem(codeNotFound, "the documentation has no such file")
	}
	c.Response().Header()[headerCacheControl] = forMinutes
	viewerFiles.ServeHTTP(c.Response(), request)
	return nil
}

// wantsHTML reports whether a client would rather show an answer to a person: browsers name text/html, programs don't.
func wantsHTML(h http.Header) bool {
	return strings.Contains(strings.Join(h["Accept"], ","), "text/html")
}
