package lua

import (
	"fmt"
	"slices"
)

// A reply without the shape that its script's header promises does not come from that script: a proxy answered, or
// another build's script. It is an error and never guessed at.

// named puts the name of a script before an error.
func named(script string, err *error) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", script, *err)
	}
}

// replyCode returns a code, which must be one of those that the script has.
func replyCode[C ~string](reply any, codes ...C) (C, error) {
	text, err := replyText(reply)
	if err == nil && !slices.Contains(codes, C(text)) {
		return "", unknownCode(text)
	}
	return C(text), err
}

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

func replyTexts(reply any) ([]string, error) {
	items, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("unknown reply: want an array of strings, got %T", reply)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		var err error
		if texts[i], err = replyText(item); err != nil {
			return nil, err
		}
	}
	return texts, nil
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
