package main

import "fmt"

// counted is a number with its noun, in the singular for one.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
