package retry

import (
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

// IsTransient reports whether an error of Redis goes away by itself: one of the network, a timeout, or a server that
// starts or fails over.
func IsTransient(err error) bool {
	if pipeline.KindOf(err) != "" || errors.Is(err, redis.ErrClosed) {
		return false
	}
	var answered redis.Error
	if !errors.As(err, &answered) {
		return true
	}
	return slices.ContainsFunc(transientPrefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

var transientPrefixes = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOSCRIPT", "NOREPLICAS",
}

// IsRefused reports whether Redis refused the user of a connection, or what the user wanted: the password or the rights
// were changed. They may be changed back, and a new connection then works.
func IsRefused(err error) bool {
	return slices.ContainsFunc([]string{"NOAUTH", "WRONGPASS", "NOPERM"}, func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
}

// Unavailable turns an error of Redis that is not transient into the KindUnavailable error that a buyer gets. An error
// of the pipeline is returned unchanged.
func Unavailable(err error) error {
	switch {
	case pipeline.KindOf(err) != "":
		return err
	case redis.IsOOMError(err):
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis is out of memory")
	case redis.HasErrorPrefix(err, "MISCONF"):
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis can't write to its disk")
	default:
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis refused the request")
	}
}
