package httpapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openAPI []byte

//go:embed admin.yaml
var adminAPI []byte

// static is an answer that does not change while the process runs.
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

// newDocument makes the contract for programs out of the embedded file. It panics when that is broken, which no test
// run survives.
func newDocument() static { return documentOf(readYAML("openapi.yaml", openAPI)) }

// newAdminDocument is the admin side's contract, with the components of the public one that it refers to.
func newAdminDocument() static {
	admin, shared := readYAML("admin.yaml", adminAPI), readYAML("openapi.yaml", openAPI)
	borrow(admin, admin, shared)
	return documentOf(admin)
}

// borrow walks a part of a document and takes over what it refers to and the document lacks.
func borrow(part any, document, shared map[string]any) {
	switch part := part.(type) {
	case []any:
		for _, one := range part {
			borrow(one, document, shared)
		}
	case map[string]any:
		for name, one := range part {
			if reference, ok := one.(string); ok && name == "$ref" {
				borrowOne(reference, document, shared)
			}
			borrow(one, document, shared)
		}
	}
}

// borrowOne takes over one component, "#/components/<kind>/<name>", and what it refers to in its turn.
func borrowOne(reference string, document, shared map[string]any) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(reference, "#/components/"), "/")
	components := func(of map[string]any) map[string]any {
		all := of["components"].(map[string]any)
		if all[kind] == nil {
			all[kind] = map[string]any{}
		}
		return all[kind].(map[string]any)
	}
	component := components(shared)[name]
	if own := components(document); own[name] == nil && component != nil {
		own[name] = component
		borrow(component, document, shared)
	}
}

func readYAML(name string, text []byte) map[string]any {
	var whole map[string]any
	if err := yaml.Unmarshal(text, &whole); err != nil {
		panic(fmt.Sprintf("httpapi: %s: %v", name, err))
	}
	return whole
}

func documentOf(whole map[string]any) static {
	body, err := json.Marshal(whole)
	if err != nil {
		panic(fmt.Sprintf("httpapi: a contract is no JSON: %v", err))
	}
	return static{contentType: jsonType, body: body}
}
