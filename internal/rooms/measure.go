package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// house is a tree of Go packages, nested modules included.
type house struct {
	packages []*room // those under rooms first, then by path
	imports  graph   // between the packages
}

// room is what one folder holds.
type room struct {
	path        string // below the root
	code, tests []file // by name
	exported    int
	uses        graph // between the files of code
}

type file struct {
	name      string
	lines     int
	functions []count // of parameters; a method has its type in front of its name
	syntax    *ast.File
}

// count is how many of something a name has.
type count struct {
	n    int
	name string
}

// skipped are the folders that the go command skips too.
var skipped = regexp.MustCompile(`^(testdata|vendor|[._].+)$`)

// measure reads every Go file of a tree. Names are resolved within each package only, so the tree need not compile.
func measure(tree fs.FS) (*house, error) {
	text, err := fs.ReadFile(tree, "go.mod")
	if err != nil {
		return nil, err
	}
	_, text, _ = bytes.Cut(text, []byte("module "))
	module, _, _ := strings.Cut(string(text), "\n")
	h, fset, byPath := &house{imports: graph{}}, token.NewFileSet(), map[string]*room{}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped.MatchString(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		r := byPath[path.Dir(name)]
		if r == nil {
			r = &room{path: path.Dir(name), uses: graph{}}
			byPath[r.path] = r
			h.packages = append(h.packages, r)
		}
		return r.read(tree, fset, name)
	})
	for _, r := range h.packages {
		r.resolve(fset)
		for _, f := range r.code {
			for _, spec := range f.syntax.Imports {
				to, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
				if ours && byPath[to] != nil {
					h.imports.add(r.path, to)
				}
			}
		}
	}
	order := func(r *room) string { return strings.TrimPrefix(r.path, rooms) } // "" and "/" come before every letter
	slices.SortFunc(h.packages, func(a, b *room) int { return cmp.Compare(order(a), order(b)) })
	return h, err
}

func (r *room) read(tree fs.FS, fset *token.FileSet, name string) error {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := file{name: path.Base(name), lines: bytes.Count(text, []byte("\n")), syntax: syntax}
	for _, decl := range syntax.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok {
			name := d.Name.Name
			if d.Recv != nil {
				name = strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + name
			}
			f.functions = append(f.functions, count{d.Type.Params.NumFields(), name})
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		r.tests = append(r.tests, f)
	} else {
		r.code = append(r.code, f)
	}
	return nil
}

// resolve counts what the package exports, and finds which file uses what another one declares.
func (r *room) resolve(fset *token.FileSet) {
	files := make([]*ast.File, 0, len(r.code))
	for _, f := range r.code {
		files = append(files, f.syntax)
		for _, one := range f.functions {
			if receiver, name, ok := strings.Cut(one.name, "."); ok && ast.IsExported(receiver) && ast.IsExported(name) {
				r.exported++
			}
		}
	}
	used := map[*ast.Ident]types.Object{}
	check := types.Config{Error: func(error) {}} // what is imported is unknown: an error that changes nothing else
	self, _ := check.Check(r.path, fset, files, &types.Info{Uses: used})
	for _, name := range self.Scope().Names() {
		if ast.IsExported(name) {
			r.exported++
		}
	}
	for at, object := range used {
		_, isFunc := object.(*types.Func) // methods are in no scope
		if object.Pkg() == self && (isFunc || object.Parent() == self.Scope()) {
			r.uses.add(path.Base(fset.Position(at.Pos()).Filename), path.Base(fset.Position(object.Pos()).Filename))
		}
	}
}

// below reports whether a path is a folder, or lies in it.
func below(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }
