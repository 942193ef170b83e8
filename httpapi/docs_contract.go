package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// contract is the part of openapi.yaml that /docs shows.
type contract struct {
	Info struct {
		Title, Summary, Description string
	}
	Tags []struct {
		Name, Description string
	}
	Paths      ordered[ordered[operation]]
	Components struct {
		Parameters map[string]parameter
		Responses  map[string]response
		Examples   map[string]example
	}
}

type operation struct {
	Tags        []string
	OperationID string `yaml:"operationId"`
	Summary     string
	Description string
	Parameters  []parameter
	RequestBody *struct {
		Description string
		Content     ordered[media]
	} `yaml:"requestBody"`
	Responses ordered[response]
	Security  []any
}

type parameter struct {
	Ref         string `yaml:"$ref"`
	Name        string
	In          string
	Required    bool
	Description string
	Example     string
}

type response struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     ordered[media]
}

type media struct {
	Example  any
	Examples ordered[example]
}

type example struct {
	Ref   string `yaml:"$ref"`
	Value any
}

// ordered is a YAML mapping in the order in which it is written, which is the order in which it reads best.
type ordered[V any] []entry[V]

type entry[V any] struct {
	Key   string
	Value V
}

// UnmarshalYAML keeps the order of the keys.
func (o *ordered[V]) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a mapping is expected", node.Line)
	}
	for i := 0; i < len(node.Content); i += 2 {
		var v V
		if err := node.Content[i+1].Decode(&v); err != nil {
			return err
		}
		*o = append(*o, entry[V]{node.Content[i].Value, v})
	}
	return nil
}

func readContract(document []byte) (*contract, error) {
	var c contract
	if err := yaml.Unmarshal(document, &c); err != nil {
		return nil, err
	}
	for _, path := range c.Paths {
		for _, method := range path.Value {
			c.resolve(&method.Value)
		}
	}
	return &c, nil
}

// resolve puts the components in the place of the references of an operation. It changes the slices in place.
func (c *contract) resolve(op *operation) {
	for i, p := range op.Parameters {
		if p.Ref != "" {
			op.Parameters[i] = c.Components.Parameters[refName(p.Ref)]
		}
	}
	for i, r := range op.Responses {
		if r.Value.Ref != "" {
			op.Responses[i].Value = c.Components.Responses[refName(r.Value.Ref)]
		}
		for _, m := range op.Responses[i].Value.Content {
			for j, e := range m.Value.Examples {
				if e.Value.Ref != "" {
					m.Value.Examples[j].Value = c.Components.Examples[refName(e.Value.Ref)]
				}
			}
		}
	}
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// indented writes an example as JSON for reading.
func indented(v any) (string, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return string(text), err
}
