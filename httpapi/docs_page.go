package httpapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

//go:embed pages
var pageFiles embed.FS

// The pages carry their style inside and load nothing, so that they work wherever the API does.
var (
	style = func() template.CSS {
		text, err := pageFiles.ReadFile("pages/style.css")
		if err != nil {
			panic(err)
		}
		return template.CSS(text) // our own file
	}()
	pages = template.Must(template.New("").Funcs(template.FuncMap{
		"style":      func() template.CSS { return style },
		"paragraphs": paragraphs,
		"coded":      coded,
		"indented":   indented,
		"curl":       curl,
		"group":      statusGroup,
		"problem":    func(code string) *definition { return problemOf[problemCode(code)] },
		"operations": func(c *contract, tag string) []operationView { return c.operations(tag) },
	}).ParseFS(pageFiles, "pages/*.html"))

	// pagePolicy allows the page's own style, by its hash, and nothing else.
	pagePolicy = func() []string {
		sum := sha256.Sum256([]byte(style))
		return []string{"default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
	}()
)

func docsPage(document []byte) static {
	c, err := readContract(document)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	body, err := render("docs.html", struct {
		*contract           // its fields are the page's
		Contract  *contract // for what the page asks it
		Problems  []definition
	}{c, c, problems})
	if err != nil {
		panic(fmt.Sprintf("httpapi: docs.html: %v", err))
	}
	return static{contentType: htmlType, policy: pagePolicy, body: body}
}

// explainProblem shows what a code means: the `type` of every problem leads here.
func explainProblem(c echo.Context) error {
	definition := problemOf[problemCode(c.Param("code"))]
	if definition == nil {
		return newProblem(codeNotFound, "no problem has this code")
	}
	body, err := render("problem.html", definition)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h[headerCacheControl] = forMinutes
	h["Content-Security-Policy"] = pagePolicy
	return send(c, http.StatusOK, htmlType, body)
}

func render(name string, data any) ([]byte, error) {
	var page bytes.Buffer
	err := pages.ExecuteTemplate(&page, name, data)
	return page.Bytes(), err
}

// operationView is an operation together with where it is found.
type operationView struct {
	operation
	Method, Path string
}

func (c *contract) operations(tag string) []operationView {
	var found []operationView
	for _, path := range c.Paths {
		for _, method := range path.Value {
			if method.Value.Tags[0] == tag {
				found = append(found, operationView{method.Value, strings.ToUpper(method.Key), path.Key})
			}
		}
	}
	return found
}

// curl is a command to try an operation with, made of the contract's own examples.
func curl(op operationView) (string, error) {
	path := op.Path
	var headers []string
	if len(op.Security) > 0 {
		headers = append(headers, "-H 'X-User-Id: alice'")
	}
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		case p.In == "header" && p.Example != "":
			headers = append(headers, "-H '"+p.Name+": "+p.Example+"'")
		}
	}
	command := "curl -i"
	if op.RequestBody != nil {
		body, err := indented(op.RequestBody.Content[0].Value.Example)
		if err != nil {
			return "", err
		}
		headers = append(headers, "--json '"+strings.Join(strings.Fields(body), "")+"'")
	}
	lines := append([]string{command + " http://127.0.0.1:8080" + path}, headers...)
	return strings.Join(lines, " \\\n  "), nil
}

// statusGroup is the class of a status in the page's style: good, refused or failed.
func statusGroup(status string) string {
	switch status[0] {
	case '2', '3':
		return "good"
	case '4':
		return "refused"
	default:
		return "failed"
	}
}

// paragraphs splits a text at its empty lines.
func paragraphs(text string) []string {
	return strings.Split(strings.TrimSpace(text), "\n\n")
}

// coded sets what stands between backticks as code, which is all the mark-up that the contract's texts use.
func coded(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) // every part was escaped above
}
