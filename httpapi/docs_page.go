package httpapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"

	"github.com/labstack/echo/v4"
)

//go:embed pages
var pageFiles embed.FS

// The pages about problems carry their style inside and load nothing, so that they work wherever the API does.
var (
	style = template.CSS(pageFile("style.css")) // our own file
	pages = template.Must(template.New("").Funcs(template.FuncMap{
		"style": func() template.CSS { return style },
	}).ParseFS(pageFiles, "pages/*.html"))

	// pagePolicy allows the page's own style, by its hash, and nothing else.
	pagePolicy = func() []string {
		sum := sha256.Sum256([]byte(style))
		return []string{"default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
	}()
)

func pageFile(name string) []byte {
	text, err := pageFiles.ReadFile("pages/" + name)
	if err != nil {
		panic(err)
	}
	return text
}

// explainProblem shows what a code means: the `type` of every problem leads here.
func explainProblem(c echo.Context) error {
	definition := problemOf[problemCode(c.Param("code"))]
	if definition == nil {
		return newProblem(codeNotFound, "no problem has this code")
	}
	return sendHTML(c, "problem.html", definition)
}

// listProblems shows all codes.
func listProblems(c echo.Context) error { return sendHTML(c, "problems.html", problems) }

func sendHTML(c echo.Context, name string, data any) error {
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, data); err != nil {
		return err
	}
	return static{contentType: htmlType, policy: pagePolicy, body: page.Bytes()}.serve(c)
}

// index says where things are: a browser is sent to the documentation, a program gets links.
func index(links ...link) echo.HandlerFunc {
	body := map[string]string{}
	var header []string
	people := "" // where a browser goes: the console comes before the documentation
	for _, l := range links {
		body[l.name] = l.path
		switch l.name {
		case "console":
			people = l.path
		case "docs":
			if people == "" {
				people = l.path
			}
			header = append(header, "<"+l.path+`>; rel="service-doc"`)
		case "openapi":
			header = append(header, "<"+l.path+`>; rel="service-desc"; type="application/json"`)
		}
	}
	return func(c echo.Context) error {
		h := c.Response().Header()
		h["Link"] = header // RFC 8631
		h["Vary"] = append(h["Vary"], "Accept")
		if wantsHTML(c.Request().Header) {
			return c.Redirect(http.StatusSeeOther, people)
		}
		return sendJSON(c, http.StatusOK, body)
	}
}

// link is where something is found.
type link struct{ name, path string }
