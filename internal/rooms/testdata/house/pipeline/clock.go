package pipeline

import "time"

func clock() int { return time.Now().Second() }

func at(hours, minutes int, seconds int) int { return hours + minutes + seconds }
