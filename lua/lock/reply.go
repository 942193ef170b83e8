package lock

import "fmt"

// named puts the name of a script before an error.
func named(script string, err *error) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", script, *err)
	}
}

// unknownReply is the error for a reply without the shape that its script's header promises.
func unknownReply(reply any) error {
	return fmt.Errorf("unknown reply: %T %.200v", reply, reply)
}
