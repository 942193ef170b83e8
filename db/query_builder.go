package db

import (
	"fmt"
	"strings"
)

// queryBuilder numbers the values of a statement.
type queryBuilder struct{ args []any }

// arg adds a value and returns its place in the statement.
func (b *queryBuilder) arg(value any) string {
	b.args = append(b.args, value)
	return fmt.Sprintf("$%d", len(b.args))
}

// conditions must all be true. There is one for each value that is given, so that the planner sees which index serves.
type conditions struct {
	builder *queryBuilder
	all     []string
}

// must adds a condition, with the value in the place of its question mark, if the value is given.
func (c *conditions) must(given bool, condition string, value any) {
	if given {
		c.all = append(c.all, strings.Replace(condition, "?", c.builder.arg(value), 1))
	}
}

// sql is true where there are no conditions.
func (c *conditions) sql() string {
	return "(" + strings.Join(append([]string{"true"}, c.all...), " and ") + ")"
}
