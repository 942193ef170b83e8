// Package process wires the programs together: it opens the stores, builds the parts, runs them and closes them in
// order. It holds no logic of its own. cmd/api and cmd/worker run one of these each; `sluice dev` runs them side by
// side.
package process
