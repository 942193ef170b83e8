package lua

import (
	_ "embed" // the script is part of the program
	"strconv"
)

// groupSource stands at the head of every script that makes a sale one of a group, takes units of it, or takes it out
// of the group: load, install, admit, join, retire.
//
//go:embed group.lua
var groupSource string

// decodeHeld reads how many units a buyer has in the other sales of a group.
func decodeHeld(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }
