// Command defects proves that the chaos run can fail: it breaks the product on purpose, one way at a time, and runs the
// short chaos with it, which must find something wrong. `make chaos-defects` runs all of them.
//
// A defect is a few lines of the tree and what stands in their place. The broken program is built with go build
// -overlay, so that nothing broken is ever in the tree. A test compares the old lines with the tree: a defect that no
// longer applies fails it, and the change of those lines says how they can be broken now.
//
// Exit codes: 0 every defect did what docs/chaos.md says of it, 1 some did not, 2 used wrong.
package main
