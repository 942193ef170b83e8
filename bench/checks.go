package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// checkAccepts compares what Redis has with what buyers were answered: as many events, slots and units taken as there
// were accepts, and the sale's counter agrees.
func (s *testbed) checkAccepts(ctx context.Context, accepts int64) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	p := s.sale.Partitions[0]
	pipe := s.control.Pipeline()
	events := pipe.XLen(ctx, keys.Orders(p))
	slots := pipe.HLen(ctx, keys.Buyers(p, saleID))
	counters := pipe.HMGet(ctx, keys.Sale(p, saleID), "stock", "accepted")
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	var stock, accepted int64
	for i, into := range []*int64{&stock, &accepted} {
		text, ok := counters.Val()[i].(string)
		if !ok {
			return errors.New("Redis has lost the sale")
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		*into = n
	}
	if taken := s.sale.Total - stock; events.Val() != accepts || slots.Val() != accepts || accepted != accepts ||
		taken != accepts {
		return fmt.Errorf("the counts do not add up: %d accepts, but %d events, %d slots, %d counted, %d units taken",
			accepts, events.Val(), slots.Val(), accepted, taken)
	}
	return nil
}

// noteScript adds what Redis counted of the script calls since the round began.
func (s *testbed) noteScript(ctx context.Context, w *Work) error {
	info, err := s.control.Info(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	calls, micros, err := parseScriptCalls(info)
	if err != nil {
		return err
	}
	if calls > 0 && w.Count > 0 {
		w.Batch, w.Script = float64(w.Count)/float64(calls), float64(micros)/float64(w.Count)
	}
	return nil
}

// parseScriptCalls reads `cmdstat_evalsha:calls=12,usec=3456,…`; without the line there were no calls.
func parseScriptCalls(info string) (calls, micros int64, err error) {
	_, line, found := strings.Cut(info, "cmdstat_evalsha:")
	if !found {
		return 0, 0, nil
	}
	if _, err := fmt.Sscanf(line, "calls=%d,usec=%d,", &calls, &micros); err != nil {
		return 0, 0, fmt.Errorf("command statistics %.60q: %w", line, err)
	}
	return calls, micros, nil
}

// checkRows compares what Postgres has with the events that there were, and, where a worker brought them, that it left
// nothing behind in Redis.
func (s *testbed) checkRows(ctx context.Context, table string, events int64) error {
	rows, err := s.countRows(ctx, table)
	if err != nil {
		return err
	}
	if rows != events {
		return fmt.Errorf("the counts do not add up: %d events, but %d rows", events, rows)
	}
	return nil
}

func (s *testbed) countRows(ctx context.Context, table string) (rows int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, `select count(*) from `+table).Scan(&rows)
	return rows, err
}

// checkCounters compares the sale's counter and watermark with the rows.
func (s *testbed) checkCounters(ctx context.Context, rows int64) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	var sold, watermark int64
	err := s.pool.QueryRow(ctx,
		`select s.sold, w.seq from sales s join watermarks w on w.sale_id = s.id where s.id = $1`, saleID).
		Scan(&sold, &watermark)
	if err != nil {
		return err
	}
	if sold != rows || watermark != rows {
		return fmt.Errorf("the counts do not add up: %d rows, but %d units sold and watermark %d", rows, sold,
			watermark)
	}
	return nil
}

// checkDrained makes sure that a worker has left no event, no pending entry and no lock behind.
func (s *testbed) checkDrained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for _, pattern := range []string{"*:lock:order:*", "*:worker:*"} {
		left, err := s.control.Keys(ctx, pattern).Result()
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("the worker has left %d keys like %s behind", len(left), left[0])
		}
	}
	events, err := s.control.XLen(ctx, keys.Orders(s.sale.Partitions[0])).Result()
	if err == nil && events > 0 {
		err = fmt.Errorf("the worker has left %d events behind", events)
	}
	return err
}
