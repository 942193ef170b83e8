package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed pages assets
var files embed.FS

// page is what every page says, and its body.
type page struct {
	Title   string
	Section string // of the navigation
	Live    string // where the live part of the page comes from; empty: it has none
	Done    string // what was just done
	Body    any

	// What is the same on all of them.
	Who       string // empty: nobody is signed in
	Role      string
	FormToken string
	Now       time.Time
	Version   string
	Sections  []section
	Style     string // paths of the assets
	Script    string
}

// section is an entry of the navigation.
type section struct{ Name, Path string }

// sections are the navigation, in the order in which somebody needs them on the day of a sale.
var sections = []section{
	{"Overview", root},
	{"Orders", root + "orders"},
	{"Dead letters", root + "dead-letters"},
	{"Payments", root + "payments"},
	{"Workers", root + "workers"},
	{"Endpoints", root + "endpoints"},
	{"Audit log", root + "log"},
	{"Settings", root + "settings"},
}

// templates are the pages by name, each with the layout and the parts that all share.
type templates map[string]*template.Template

// loadTemplates panics where a page can't be read: the program was built wrong.
func loadTemplates() templates {
	shared := template.Must(template.New("").Funcs(formats).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	pages, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err)
	}
	all := templates{}
	for _, file := range pages {
		if file == "pages/layout.html" || file == "pages/parts.html" {
			continue
		}
		one := template.Must(template.Must(shared.Clone()).ParseFS(files, file))
		all[strings.TrimSuffix(path.Base(file), ".html")] = one
	}
	return all
}

// render writes a page, all of it or nothing.
func (q *request) render(status int, name string, p page) error {
	if q.who.Name != "" {
		p.Who, p.Role, p.FormToken = q.who.Name, string(q.who.Role), q.c.sessions.formToken(q.session)
	}
	p.Now, p.Version, p.Sections = q.c.Now().UTC(), q.c.Version, sections
	p.Style, p.Script = embedded.paths["style.css"], embedded.paths["console.js"]
	if done := q.URL.Query().Get("done"); p.Done == "" {
		p.Done = doneTexts[done]
	}
	var body bytes.Buffer
	if err := q.c.templates[name].ExecuteTemplate(&body, "layout", p); err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.status = status
	q.w.WriteHeader(status)
	_, _ = q.w.Write(body.Bytes()) // the browser has gone
	return nil
}

// part renders the live part of a page.
func (q *request) part(name string, body any) ([]byte, error) {
	var out bytes.Buffer
	err := q.c.templates[name].ExecuteTemplate(&out, "live", body)
	return out.Bytes(), err
}

// redirect sends a browser to another page of the console.
func (q *request) redirect(to string) error {
	q.status = http.StatusSeeOther
	http.Redirect(q.w, q.Request, to, http.StatusSeeOther)
	return nil
}

// assets are served under names that change with what they hold, so that browsers may keep them for ever.
type assets struct {
	paths map[string]string // by name
	files map[string]asset  // by path
}

type asset struct {
	contentType string
	body        []byte
}

// embedded are those of this build.
var embedded = loadAssets()

func loadAssets() assets {
	a := assets{map[string]string{}, map[string]asset{}}
	for name, contentType := range map[string]string{
		"style.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		body, err := files.ReadFile("assets/" + name)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		at := root + "assets/" + hex.EncodeToString(sum[:6]) + "-" + name
		a.paths[name], a.files[at] = at, asset{contentType, body}
	}
	return a
}

func (c *console) serveAsset(q *request) error {
	file, found := embedded.files[q.URL.Path]
	if !found {
		return &refusal{http.StatusNotFound, "Not found", "there is no such file"}
	}
	q.w.Header().Set("Content-Type", file.contentType)
	q.w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	q.status = http.StatusOK
	_, _ = q.w.Write(file.body) // the browser has gone
	return nil
}
