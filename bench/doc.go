// Command bench measures Sluice on this machine, on private servers that fsync every write, and says what each of its
// promises costs: orders accepted over HTTP against a handler that only parses and answers, and rows persisted by a
// worker against a bare insert of the same rows.
//
// Absolute numbers of a shared machine are noise from one minute to the next, so every comparison is measured
// interleaved (A B, B A, A B, …) and reported as the median of the rounds' own ratios, with the lowest and the
// highest beside it. CPU time per order is reported too: it hardly depends on what else the machine does.
//
// After each round the counts are checked: as many events, slots and units taken as buyers were answered 202, as many
// rows as there were events. A run that does not add up ends with exit code 1 and no numbers.
//
// The buyers are a process of their own (see buyers_process.go). In the server's process their goroutines would share
// its scheduler and its garbage collector, a profile would show both, and it would not be known whose CPU time it
// was.
package main
