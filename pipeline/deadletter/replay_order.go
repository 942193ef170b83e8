package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// replayTimeout bounds one call to Redis of a replay.
const replayTimeout = 3 * time.Second

// admitSpan bounds the time between the slots and the entries that one run of admit.lua writes; a run takes under 1 ms.
const admitSpan = time.Second

// order makes the order, or finds the one that an earlier try made, and returns its id.
func (r *Replayer) order(ctx context.Context, letter *Letter, sale *pipeline.Sale, as ReplayAs) (string, error) {
	generation, err := r.store.Generation(ctx) // before the slot is read: it may be lost after
	if err != nil {
		return "", err
	}
	slot, err := r.slot(ctx, sale, as.UserID)
	if err != nil {
		return "", err
	}
	if ownSlot(letter, slot, sale.PartitionOf(as.UserID)) {
		return r.ownOrder(ctx, generation, letter, sale, as, slot)
	}
	return r.newOrder(ctx, generation, letter, sale, as)
}

// slot is the buyer's slot in the sale; the zero Slot where it is free.
func (r *Replayer) slot(ctx context.Context, sale *pipeline.Sale, userID string) (lua.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	slot, err := redisstore.ReadSlot(
		ctx, r.rdb, r.keys, placeOf(sale, userID), userID,
	)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return lua.Slot{}, nil
	}
	return slot, err
}

// placeOf is the share of a sale that serves a buyer.
func placeOf(sale *pipeline.Sale, userID string) pipeline.SalePartition {
	return pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(userID)}
}

// ownSlot reports whether a slot is that of the letter's own accept, whose release could not be written. Where the
// entry's order id is wrecked, its entry id decides: admit.lua writes slot and entry within one run. Should a stranger
// have written the entry just then, an order is persisted that will be persisted anyway.
func ownSlot(l *Letter, slot lua.Slot, p pipeline.Partition) bool {
	if slot.OrderID == "" || p != l.Partition {
		return false
	}
	text, _, _ := strings.Cut(l.EntryID, "-")
	written, err := strconv.ParseInt(text, 10, 64)
	since := time.Duration(written-slot.AcceptedMS) * time.Millisecond
	return slot.OrderID == l.OrderID || err == nil && l.Reason == Undecodable && since >= 0 && since <= admitSpan
}

// ownOrder persists the letter's own order, which the slot describes in full. It is what a worker would have done with
// the entry, and like that it changes nothing the second time.
func (r *Replayer) ownOrder(
	ctx context.Context, generation pipeline.Generation, letter *Letter, sale *pipeline.Sale, as ReplayAs, slot lua.Slot,
) (string, error) {
	if slot.Quantity != as.Quantity {
		return "", pipeline.Errorf(
			pipeline.KindInvalid, "dead letter %d: field q: order %s was accepted for %d units, and holds them; set it to that",
			letter.ID, slot.OrderID, slot.Quantity,
		)
	}
	if _, err := r.begin(ctx, letter, slot.OrderID, as); err != nil {
		return "", err
	}
	err := r.persist(ctx, generation, letter, redisstore.EventOfSlot(placeOf(sale, as.UserID), as.UserID, slot))
	r.noteRefusal(ctx, letter, err)
	return slot.OrderID, err
}

func (r *Replayer) persist(
	ctx context.Context, generation pipeline.Generation, letter *Letter, event pipeline.Event,
) error {
	outcomes, err := r.store.PersistOrders(ctx, generation, []pipeline.Event{event})
	switch {
	case errors.Is(err, pipeline.ErrStaleGeneration):
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis is being verified anew; repeat the replay")
	case pipeline.KindOf(err) == pipeline.KindData:
		return cantBeTaken(letter, fmt.Sprintf("Postgres refuses order %s: %s", event.OrderID, err))
	case err != nil:
		return err
	case outcomes[0] == pipeline.PersistInserted, outcomes[0] == pipeline.PersistRedelivered:
		return nil
	default:
		return cantBeTaken(letter, fmt.Sprintf("order %s can't stand: %s", event.OrderID, outcomes[0]))
	}
}

// newOrder has the order admitted like every other, under an id that is stored before the call, and persists it: no
// accept journal has it, so until it has its row the letter is what it can be made from again. What a worker finds in
// the stream afterwards is a repeated delivery. An order that Postgres refuses is left to the worker, which buries it.
func (r *Replayer) newOrder(
	ctx context.Context, generation pipeline.Generation, letter *Letter, sale *pipeline.Sale, as ReplayAs,
) (string, error) {
	if err := r.checkBuyer(ctx, letter, sale, as); err != nil {
		return "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", pipeline.Wrap(pipeline.KindUnavailable, err, "no randomness for an order id")
	}
	orderID, err := r.begin(ctx, letter, id.String(), as)
	if err != nil {
		return "", err
	}
	accepted, err := r.admit(ctx, letter, sale, as, orderID)
	r.noteRefusal(ctx, letter, err)
	if err != nil || accepted == nil {
		return orderID, err
	}
	err = r.persist(ctx, generation, letter, *accepted)
	if kind := pipeline.KindOf(err); kind == pipeline.KindUnavailable || kind == "" {
		return orderID, err
	}
	return orderID, nil
}

// checkBuyer refuses a replay for a buyer who has another live order: Redis may have forgotten it, and would accept
// what Postgres then refuses. An order that another replay of this letter has made since the letter was read is no
// other one.
func (r *Replayer) checkBuyer(ctx context.Context, letter *Letter, sale *pipeline.Sale, as ReplayAs) error {
	latest, err := r.store.LatestOrder(ctx, sale.ID, as.UserID)
	if pipeline.KindOf(err) == pipeline.KindNotFound || err == nil && !latest.Status.Live() {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := r.store.Letter(ctx, letter.ID)
	switch {
	case err != nil:
		return err
	case resolvedError(&now) != nil:
		return resolvedError(&now)
	case latest.ID == now.ReplayID:
		return nil
	}
	return cantBeTaken(letter, fmt.Sprintf("buyer %s has order %s in sale %s already", as.UserID, latest.ID, sale.ID))
}

// begin stores what is about to be asked for, under an order id that is the same in every try, and returns that id.
func (r *Replayer) begin(ctx context.Context, letter *Letter, orderID string, as ReplayAs) (string, error) {
	stored, noted, err := r.store.BeginReplay(ctx, letter.ID, orderID, as)
	switch {
	case pipeline.KindOf(err) == pipeline.KindConflict:
		return "", r.whyNot(ctx, letter.ID, err)
	case err != nil:
		return "", err
	case noted != as:
		return "", pipeline.Errorf(
			pipeline.KindConflict,
			"a replay of dead letter %d for %d units by buyer %s in sale %s was begun, and its outcome is not known; "+
				"repeat that first",
			letter.ID, noted.Quantity, noted.UserID, noted.SaleID,
		)
	}
	return stored, nil
}

// admit asks Redis for the order, unless Postgres knows it: an order that an earlier try made may have ended since, and
// its slot be free, so that asking again would take units twice. It returns the accept, or nil where Postgres has the
// order.
func (r *Replayer) admit(
	ctx context.Context, letter *Letter, sale *pipeline.Sale, as ReplayAs, orderID string,
) (*pipeline.Event, error) {
	if _, err := r.store.Order(ctx, sale.ID, orderID); pipeline.KindOf(err) != pipeline.KindNotFound {
		return nil, err
	}
	outcome, err := r.call(ctx, sale, lua.AdmitRequest{OrderID: orderID, UserID: as.UserID, Quantity: as.Quantity})
	if err != nil {
		return nil, err
	}
	if outcome.Code != lua.AdmitAccepted {
		return nil, refusedReplay(letter, sale, as, outcome)
	}
	event := redisstore.EventOfSlot(placeOf(sale, as.UserID), as.UserID, outcome.Slot)
	return &event, nil
}

// call numbers the order and asks for it, once: repeating the replay repeats the call.
func (r *Replayer) call(ctx context.Context, sale *pipeline.Sale, request lua.AdmitRequest) (lua.AdmitOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	unknown := func(err error) (lua.AdmitOutcome, error) {
		return lua.AdmitOutcome{}, pipeline.Wrap(
			pipeline.KindUnavailable, err, "Redis did not answer as it should, and the order may stand; repeat the replay",
		)
	}
	numbers := make([]int64, 1)
	if err := r.numbers.Take(ctx, numbers); err != nil {
		return unknown(err)
	}
	request.Number = numbers[0]
	p := sale.PartitionOf(request.UserID)
	reply, err := lua.Admit(
		ctx, r.rdb, r.keys.ForSale(p, sale.ID), sale.ID, pipeline.DefaultStreamMaxLag, []lua.AdmitRequest{request},
	)
	if err != nil {
		return unknown(err)
	}
	return reply.Outcomes[0], nil
}
