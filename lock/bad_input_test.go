package lock_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"sluice/lock"
)

// Calls that can't be right are refused with an error that says so, before anything is sent: no key is left.
func TestBadInput(t *testing.T) {
	f := newFixture(t)
	l, ok := f.client(), f.key("ok")
	long := f.key(strings.Repeat("x", lock.MaxKeyBytes))
	cancelled, cancel := context.WithCancel(f.ctx)
	cancel()
	closed := lock.New(f.rdb)
	check(t, closed.Close())
	with := func(ttl time.Duration) *lock.Client { return lock.New(f.rdb, lock.WithTTL(ttl)) }
	party := func(l lock.CountDownLatch, name string) error { _, err := l.CountDown(f.ctx, name); return err }
	locked := func(l lock.Locker, options ...lock.CallOption) error {
		_, err := l.Lock(f.ctx, options...)
		_, again := l.TryLock(f.ctx, options...)
		if !errors.Is(again, errors.Unwrap(err)) && err != nil && again == nil {
			t.Errorf("Lock is refused (%v) and TryLock is not", err)
		}
		return err
	}
	acquire := func(c *lock.Client, n, count int64) error {
		_, err := c.Semaphore(ok, n).Acquire(f.ctx, count)
		return err
	}
	permit := func(n int64, lease time.Duration) error {
		_, err := l.ExpirableSemaphore(ok, n).Acquire(f.ctx, lease)
		return err
	}
	for name, test := range map[string]struct{ got, want error }{
		"empty key":             {locked(l.Mutex("")), lock.ErrBadKey},
		"empty key, fair":       {locked(l.FairMutex("")), lock.ErrBadKey},
		"empty key, rw":         {locked(l.RWMutex("")), lock.ErrBadKey},
		"empty key, semaphore":  {locked(l.Semaphore("", 1)), lock.ErrBadKey},
		"empty key, latch":      {party(l.CountDownLatch("", 1, time.Minute), "p"), lock.ErrBadKey},
		"long key":              {locked(l.Mutex(long)), lock.ErrBadKey},
		"brace without a tag":   {locked(l.Mutex("a}b")), lock.ErrBadKey},
		"ttl 0":                 {locked(with(0).Mutex(ok)), lock.ErrBadTTL},
		"ttl negative":          {locked(with(-time.Second).RWMutex(ok)), lock.ErrBadTTL},
		"ttl too long":          {locked(with(lock.MaxTTL + 1).Mutex(ok)), lock.ErrBadTTL},
		"lease negative":        {locked(l.Mutex(ok), lock.Lease(-1)), lock.ErrBadTTL},
		"lease too short":       {locked(l.Semaphore(ok, 1), lock.Lease(lock.MinTTL-1)), lock.ErrBadTTL},
		"wait negative":         {locked(l.Mutex(ok), lock.Wait(-1)), lock.ErrBadTTL},
		"an owner of a permit":  {locked(l.Semaphore(ok, 1), lock.As(lock.NewOwner())), lock.ErrNoOwner},
		"semaphore of 0":        {acquire(l, 0, 1), lock.ErrBadCount},
		"semaphore of 2^31":     {acquire(l, math.MaxInt32+1, 1), lock.ErrBadCount},
		"0 permits":             {acquire(l, 3, 0), lock.ErrBadCount},
		"negative permits":      {acquire(l, 3, -1), lock.ErrBadCount},
		"more than there are":   {acquire(l, 3, 4), lock.ErrBadCount},
		"2^31 permits":          {acquire(l, math.MaxInt32, math.MaxInt32+1), lock.ErrBadCount},
		"expirable of 0":        {permit(0, time.Second), lock.ErrBadCount},
		"expirable, lease 0":    {permit(1, 0), lock.ErrBadTTL},
		"latch of 0":            {party(l.CountDownLatch(ok, 0, time.Minute), "p"), lock.ErrBadCount},
		"latch of too many":     {party(l.CountDownLatch(ok, lock.MaxParties+1, time.Minute), "p"), lock.ErrBadCount},
		"latch without life":    {party(l.CountDownLatch(ok, 1, 0), "p"), lock.ErrBadTTL},
		"a party without name":  {party(l.CountDownLatch(ok, 1, time.Minute), ""), lock.ErrBadKey},
		"quorum of none":        {locked(lock.Quorum().Mutex(ok)), lock.ErrBadCount},
		"quorum of two":         {locked(lock.Quorum(l, l).Mutex(ok)), lock.ErrBadCount},
		"closed":                {locked(closed.Mutex(ok)), lock.ErrClosed},
		"closed, rw":            {locked(closed.RWMutex(ok)), lock.ErrClosed},
		"closed, semaphore":     {locked(closed.Semaphore(ok, 1)), lock.ErrClosed},
		"closed, latch":         {closed.CountDownLatch(ok, 1, time.Minute).Wait(f.ctx), lock.ErrClosed},
		"closed, quorum":        {locked(lock.Quorum(closed).Mutex(ok)), lock.ErrClosed},
		"closed, many":          {errOf(closed.TryLockMany(f.ctx, []string{ok})), lock.ErrClosed},
		"closed, once":          {errOf(closed.RunOnce(f.ctx, ok, time.Second, nothing)), lock.ErrClosed},
		"cancelled":             {errOf(l.Mutex(ok).Lock(cancelled)), context.Canceled},
		"cancelled, fair":       {errOf(l.FairMutex(ok).Lock(cancelled)), context.Canceled},
		"cancelled, rw":         {errOf(l.RWMutex(ok).Lock(cancelled)), context.Canceled},
		"cancelled, semaphore":  {errOf(l.Semaphore(ok, 1).Lock(cancelled)), context.Canceled},
		"cancelled, latch":      {l.CountDownLatch(ok, 1, time.Minute).Wait(cancelled), context.Canceled},
		"cancelled, quorum":     {errOf(lock.Quorum(l).Mutex(ok).Lock(cancelled)), context.Canceled},
		"many, an empty key":    {errOf(l.TryLockMany(f.ctx, []string{ok, ""})), lock.ErrBadKey},
		"many, none":            {errOf(l.TryLockMany(f.ctx, nil)), lock.ErrBadCount},
		"many, ttl 0":           {errOf(with(0).TryLockMany(f.ctx, []string{ok})), lock.ErrBadTTL},
		"once, an empty key":    {errOf(l.RunOnce(f.ctx, "", time.Second, nothing)), lock.ErrBadKey},
		"once, tick 0":          {errOf(l.RunOnce(f.ctx, ok, 0, nothing)), lock.ErrBadTTL},
		"extension of nothing":  {errOf(l.ExpirableSemaphore(ok, 1).Extend(f.ctx, "x.1", 0)), lock.ErrBadTTL},
		"extension of no id":    {errOf(l.ExpirableSemaphore(ok, 1).Extend(f.ctx, "x y", time.Second)), lock.ErrNotHeld},
		"release of no permit":  {l.ExpirableSemaphore(ok, 1).Release(f.ctx, "x.1"), lock.ErrNotHeld},
		"all of a foreign kind": {errOf(lock.All(foreign{}).Lock(f.ctx)), nil},
	} {
		if test.got == nil || test.want != nil && !errors.Is(test.got, test.want) {
			t.Errorf("%s: got %v, want %v", name, test.got, test.want)
		}
	}
	keys, err := f.rdb.Keys(f.ctx, f.prefix+"*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("keys are left: %v, %v", keys, err)
	}
}

type foreign struct{ lock.Locker }
