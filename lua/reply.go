package lua

import "fmt"

// A reply without the shape that its script's header promises was not given by that script: a proxy answered, or another
// build's script. It is an error and never guessed at.

func replyArray(reply any, length int) ([]any, error) {
	items, ok := reply.([]any)
	if !ok || len(items) != length {
		return nil, fmt.Errorf("unknown reply: want an array of %d, got %T %.200v", length, reply, reply)
	}
	return items, nil
}

func replyText(reply any) (string, error) {
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("unknown reply: want a string, got %T %.200v", reply, reply)
	}
	return text, nil
}

func replyInteger(reply any) (int64, error) {
	n, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("unknown reply: want an integer, got %T %.200v", reply, reply)
	}
	return n, nil
}

func unknownCode(code any) error {
	return fmt.Errorf("unknown reply: code %.200q", code)
}
