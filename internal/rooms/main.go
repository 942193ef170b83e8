// Command rooms measures the packages of this repository: how big each is, what it exports, and which depends on which.
// The packages under pipeline/ are the rooms of the house; they come first.
//
//   - Lines are all lines of Go files outside of testdata.
//   - Exported symbols are the types, functions, constants and variables at package level, and the exported methods of
//     exported types. Fields of structs, methods of interfaces and what a test declares are not counted.
//   - Parameters are those of a function or method, without its receiver.
//   - An arrow between packages is an import outside of tests.
//   - An arrow between two files of a package means that the first uses something that the second declares at package
//     level, or a method. Tests and fields of structs are left out. "circles" counts the arrows whose end leads back to
//     their beginning; "back" those that run upwards once the files are in order: a file is higher, the more files it
//     uses and the fewer use it.
//
// With -check it prints only what exceeds a limit; the limit of parameters holds for tests too. Exit codes: 0 all is
// well, 1 a limit is exceeded or the tree can't be read, 2 the arguments are wrong.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// rooms is the folder whose packages are listed first, and whose arrows are printed.
const rooms = "pipeline"

// harness lists the folders that test, measure and show the product; everything else is the product. A folder that
// takes the place of one of these belongs here too.
var harness = []string{
	"bench", "chaos", "cmd/sluice/demo", "deploy", "internal/buyers",
	"internal/faultnet", "internal/loadgen", "internal/localservers", "internal/programs", "internal/rooms",
	"internal/table", "internal/testkit",
	"pipeline/pipelinetest",
}

// limit is how much a reader should meet at once.
type limit struct {
	exported   int // symbols of a package
	codeLines  int // of a file
	testLines  int // of a file of tests
	parameters int
}

var limits = limit{exported: 120, codeLines: 400, testLines: 600, parameters: 6}

func main() {
	dir := flag.String("dir", ".", "root of the tree: the folder of go.mod")
	check := flag.Bool("check", false, "print what exceeds a limit, and exit with 1 if anything does")
	flag.Parse()
	os.Exit(run(*dir, *check, os.Stdout, os.Stderr))
}

func run(dir string, check bool, out, complaints io.Writer) (exitCode int) {
	h, err := measure(os.DirFS(dir))
	if err != nil {
		fmt.Fprintln(complaints, "rooms:", err)
		return 1
	}
	if !check {
		h.print(out)
		return 0
	}
	found := h.breaches(limits)
	for _, breach := range found {
		fmt.Fprintln(out, breach)
	}
	return min(len(found), 1)
}
