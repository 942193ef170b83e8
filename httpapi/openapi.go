package httpapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openAPI []byte

// static is an answer that does not change while the process lives.
type static struct {
	contentType []string
	policy      []string // Content-Security-Policy; nil keeps the strictest
	body        []byte
}

func (s static) serve(c echo.Context) error {
	h := c.Response().Header()
	h[headerCacheControl] = forMinutes
	if s.policy != nil {
		h["Content-Security-Policy"] = s.policy
	}
	return send(c, http.StatusOK, s.contentType, s.body)
}

// newDocument makes the contract for programs and for people out of the embedded file. It panics when that is broken,
// which no test run survives.
func newDocument() (document, page static) {
	var whole any
	if err := yaml.Unmarshal(openAPI, &whole); err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	body, err := json.Marshal(whole)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	return static{contentType: jsonType, body: body}, docsPage(openAPI)
}
