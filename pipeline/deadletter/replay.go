package deadletter

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/ordernumber"
	"sluice/pipeline/redisstore"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// replayTimeout bounds one call to Redis of a replay.
const replayTimeout = 3 * time.Second

// admitSpan bounds the time between the slots and the entries that one run of admit.lua writes; a run takes under 1 ms.
const admitSpan = time.Second

// RepairFields are the fields of an event that a replay reads, and so those that an operator can repair: version, sale,
// user, quantity. Everything else of an order is made anew.
var RepairFields = []string{"s", "u", "q", "v"}

// maxRepairBytes bounds a repaired value: more than any field's own limit, so that the field's rule is what is told.
const maxRepairBytes = 1000

// LetterStore is where dead letters are kept.
type LetterStore interface {
	Letter(ctx context.Context, id int64) (Letter, error)
	// BeginReplay notes what is about to be asked for, unless an earlier try noted something, and returns what is noted.
	BeginReplay(ctx context.Context, id int64, orderID string, as ReplayAs) (string, ReplayAs, error)
	// EndReplay notes that the try made no order. The order id stays.
	EndReplay(ctx context.Context, id int64) error
	// ResolveLetter returns when the letter was resolved. KindConflict: it was already, or a replay of it is under way.
	ResolveLetter(ctx context.Context, id int64, how LetterResolution) (time.Time, error)
	// OrderReleases are those of an order that are not applied.
	OrderReleases(ctx context.Context, saleID, orderID string) ([]pipeline.Release, error)
}

// ReplayStore is what a replay needs of Postgres.
type ReplayStore interface {
	LetterStore
	lifecycle.OrderSource
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
	Generation(ctx context.Context) (pipeline.Generation, error)
	PersistOrders(ctx context.Context, generation pipeline.Generation, events []pipeline.Event) ([]pipeline.PersistOutcome, error)
}

// Replayer resolves dead letters, as an operator asks for it: it makes an order of one, or notes that none shall be made.
type Replayer struct {
	rdb      redis.UniversalClient
	keys     pipeline.Keys
	store    ReplayStore
	releaser *lifecycle.Releaser
	numbers  *ordernumber.Generator
	log      *slog.Logger
}

// NewReplayer returns a Replayer over both stores.
func NewReplayer(rdb redis.UniversalClient, keys pipeline.Keys, store ReplayStore, releaser *lifecycle.Releaser, log *slog.Logger) *Replayer {
	return &Replayer{rdb: rdb, keys: keys, store: store, releaser: releaser, numbers: ordernumber.NewGenerator(rdb, keys), log: log}
}

// Replay makes an order of a dead letter, with the repaired fields in the place of the stored ones, and returns the letter
// as it is afterwards. The order goes through the same gate as every other: it takes stock and a slot that are free now. The
// exception is a letter whose accept still holds both, because its entry was too broken to give them back: then that very
// order is persisted, as its buyer was told.
//
// It may die anywhere and be repeated: the order's id is stored before it is asked for, so that no two orders come of it.
//
// Errors: KindNotFound (no such letter), KindInvalid (which field is wrong), KindConflict (it is resolved, or the order can't
// be taken now, and why), KindNotLoaded, KindUnavailable (repeat it: the order may stand).
func (r *Replayer) Replay(ctx context.Context, id int64, actor string, repairs map[string]string) (Letter, error) {
	if err := errors.Join(pipeline.ValidateActor(actor), ValidateRepairs(repairs)); err != nil {
		return Letter{}, err
	}
	letter, err := r.store.Letter(ctx, id)
	if err != nil {
		return Letter{}, err
	}
	if err := resolvedError(&letter); err != nil {
		return letter, err
	}
	as, err := readReplay(&letter, repairs)
	if err != nil {
		return letter, err
	}
	sale, err := r.store.Sale(ctx, as.SaleID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return letter, pipeline.Errorf(pipeline.KindInvalid, "dead letter %d: field s: there is no sale %s; give the field another value", id, as.SaleID)
	}
	if err != nil {
		return letter, err
	}
	if err := r.giveBack(ctx, &letter); err != nil {
		return letter, err
	}
	orderID, err := r.order(ctx, &letter, sale, as)
	if err != nil {
		return letter, err
	}
	return r.resolve(ctx, letter, LetterResolution{
		Resolution: Replayed, Actor: actor, SaleID: sale.ID, OrderID: orderID, Repairs: repairs,
	})
}

// Discard notes that no order shall be made of a dead letter. What the letter's order held was given back when it was
// buried, or will be. Errors: KindNotFound, KindInvalid, KindConflict (it is resolved, or a replay's outcome is not known).
func (r *Replayer) Discard(ctx context.Context, id int64, actor, note string) (Letter, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return Letter{}, err
	}
	if len(note) > pipeline.MaxNoteBytes || !utf8.ValidString(note) || strings.ContainsRune(note, 0) {
		return Letter{}, pipeline.Errorf(pipeline.KindInvalid, "note: use at most %d bytes of UTF-8", pipeline.MaxNoteBytes)
	}
	letter, err := r.store.Letter(ctx, id)
	if err != nil {
		return Letter{}, err
	}
	if err := resolvedError(&letter); err != nil {
		return letter, err
	}
	how := LetterResolution{Resolution: Discarded, Actor: actor, Note: note}
	if pipeline.ValidSaleID(letter.SaleID) {
		how.SaleID = letter.SaleID
	}
	return r.resolve(ctx, letter, how)
}

func (r *Replayer) resolve(ctx context.Context, letter Letter, how LetterResolution) (Letter, error) {
	at, err := r.store.ResolveLetter(ctx, letter.ID, how)
	switch {
	case pipeline.KindOf(err) == pipeline.KindConflict: // somebody else was faster
		return letter, r.whyNot(ctx, letter.ID, err)
	case err != nil && how.Resolution == Replayed:
		return letter, pipeline.Wrap(pipeline.KindUnavailable, err, fmt.Sprintf(
			"order %s stands, but Postgres did not confirm that dead letter %d is replayed; repeat it", how.OrderID, letter.ID))
	case err != nil:
		return letter, err
	}
	letter.ResolvedAt, letter.Resolution, letter.Note = at, how.Resolution, how.Note
	if how.OrderID != "" {
		letter.ReplayID = how.OrderID
	}
	r.log.Info("dead letter resolved", "letter", letter.ID, "resolution", how.Resolution, "actor", how.Actor,
		"sale", how.SaleID, "order", how.OrderID)
	return letter, nil
}

// whyNot says how a letter was resolved meanwhile.
func (r *Replayer) whyNot(ctx context.Context, id int64, conflict error) error {
	letter, err := r.store.Letter(ctx, id)
	if err != nil || resolvedError(&letter) == nil {
		return conflict
	}
	return resolvedError(&letter)
}

// ValidateRepairs returns a KindInvalid error for a field that a replay does not read, or a value that no field could have.
func ValidateRepairs(repairs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(repairs)) {
		switch value := repairs[name]; {
		case !slices.Contains(RepairFields, name):
			return pipeline.Errorf(pipeline.KindInvalid, "field %q can't be set: a replay reads %s and makes the others anew",
				pipeline.Clip(name), strings.Join(RepairFields, ", "))
		case len(value) > maxRepairBytes || !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return pipeline.Errorf(pipeline.KindInvalid, "field %s: use at most %d bytes of UTF-8", name, maxRepairBytes)
		}
	}
	return nil
}

// readReplay reads what a replay needs as an event is read, with harmless values for what is made anew: a wrecked sequence
// or number must not stop a replay.
func readReplay(letter *Letter, repairs map[string]string) (ReplayAs, error) {
	fields := map[string]any{"v": "1", "k": "1", "o": uuid.Nil.String(), "n": "1", "t": "1"}
	for _, name := range RepairFields {
		if value, ok := payloadField(letter, name); ok {
			fields[name] = value
		}
		if value, ok := repairs[name]; ok {
			fields[name] = value
		}
	}
	event, err := pipeline.DecodeEvent(letter.Partition, letter.EntryID, fields)
	if err != nil {
		return ReplayAs{}, pipeline.Errorf(pipeline.KindInvalid, "dead letter %d: %s; give the field another value", letter.ID, err)
	}
	return ReplayAs{SaleID: event.SaleID, UserID: event.UserID, Quantity: event.Quantity}, nil
}

// giveBack applies the release of the letter's own order, if there is one left: until then its units and its buyer's slot
// are taken.
func (r *Replayer) giveBack(ctx context.Context, letter *Letter) error {
	due, err := r.store.OrderReleases(ctx, letter.SaleID, letter.OrderID)
	if err != nil || len(due) == 0 {
		return err
	}
	_, err = r.releaser.ApplyReleases(ctx, due)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lua.ErrNotLoaded), errors.Is(err, lua.ErrUntrusted):
		return pipeline.Wrap(pipeline.KindNotLoaded, err, fmt.Sprintf("Redis does not hold sale %s, so that what order %s held can't be given back yet",
			letter.SaleID, letter.OrderID))
	default:
		return pipeline.Wrap(pipeline.KindUnavailable, err, fmt.Sprintf("what order %s held could not be given back, so that its buyer's place is still taken; repeat it",
			letter.OrderID))
	}
}

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
	return r.newOrder(ctx, letter, sale, as)
}

// slot is the buyer's slot in the sale; the zero Slot where it is free.
func (r *Replayer) slot(ctx context.Context, sale *pipeline.Sale, userID string) (lua.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	slot, err := redisstore.ReadSlot(ctx, r.rdb, r.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(userID)}, userID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return lua.Slot{}, nil
	}
	return slot, err
}

// ownSlot reports whether a slot is that of the letter's own accept, whose release could not be written. Where the entry's
// order id is wrecked, its entry id tells: admit.lua writes slot and entry within one run. Should a stranger have written
// the entry just then, an order is persisted that is on its way to be.
func ownSlot(l *Letter, slot lua.Slot, p pipeline.Partition) bool {
	if slot.OrderID == "" || p != l.Partition {
		return false
	}
	text, _, _ := strings.Cut(l.EntryID, "-")
	written, err := strconv.ParseInt(text, 10, 64)
	since := time.Duration(written-slot.AcceptedMS) * time.Millisecond
	return slot.OrderID == l.OrderID || err == nil && l.Reason == Undecodable && since >= 0 && since <= admitSpan
}

// ownOrder persists the letter's own order, which the slot tells in full. It is what a worker would have done with the
// entry, and like that it changes nothing the second time.
func (r *Replayer) ownOrder(ctx context.Context, generation pipeline.Generation, letter *Letter, sale *pipeline.Sale, as ReplayAs, slot lua.Slot) (string, error) {
	if slot.Quantity != as.Quantity {
		return "", pipeline.Errorf(pipeline.KindInvalid, "dead letter %d: field q: order %s was accepted for %d units, and holds them; set it to that",
			letter.ID, slot.OrderID, slot.Quantity)
	}
	if _, err := r.begin(ctx, letter, slot.OrderID, as); err != nil {
		return "", err
	}
	err := r.persist(ctx, generation, letter, pipeline.Event{
		Partition: letter.Partition, EntryID: letter.EntryID, SaleID: sale.ID, Sequence: slot.Sequence,
		OrderID: slot.OrderID, Number: slot.Number, UserID: as.UserID, Quantity: slot.Quantity,
		AcceptedAt: time.UnixMilli(slot.AcceptedMS).UTC(),
	})
	r.noteRefusal(ctx, letter, err)
	return slot.OrderID, err
}

func (r *Replayer) persist(ctx context.Context, generation pipeline.Generation, letter *Letter, event pipeline.Event) error {
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

// newOrder lets the order through the same gate as every other, under an id that is stored before the call.
func (r *Replayer) newOrder(ctx context.Context, letter *Letter, sale *pipeline.Sale, as ReplayAs) (string, error) {
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
	err = r.admit(ctx, letter, sale, as, orderID)
	r.noteRefusal(ctx, letter, err)
	return orderID, err
}

// noteRefusal notes that a try made no order, if that is what its error says. Where it can't, the next try finds out.
func (r *Replayer) noteRefusal(ctx context.Context, letter *Letter, err error) {
	if kind := pipeline.KindOf(err); kind != pipeline.KindConflict && kind != pipeline.KindNotLoaded {
		return
	}
	if err := r.store.EndReplay(ctx, letter.ID); err != nil {
		r.log.Warn("the outcome of a replay was not noted", "letter", letter.ID, "error", err)
	}
}

// checkBuyer refuses a replay for a buyer who has another live order: Redis may have forgotten it, and would accept what
// Postgres then refuses.
func (r *Replayer) checkBuyer(ctx context.Context, letter *Letter, sale *pipeline.Sale, as ReplayAs) error {
	switch latest, err := r.store.LatestOrder(ctx, sale.ID, as.UserID); {
	case err == nil && latest.Status.Live() && latest.ID != letter.ReplayID:
		return r.whyNot(ctx, letter.ID, cantBeTaken(letter, fmt.Sprintf("buyer %s has order %s in sale %s already", as.UserID, latest.ID, sale.ID)))
	case pipeline.KindOf(err) == pipeline.KindNotFound:
		return nil
	default:
		return err
	}
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
		return "", pipeline.Errorf(pipeline.KindConflict, "a replay of dead letter %d for %d units by buyer %s in sale %s was begun, and its outcome is not known; repeat that first",
			letter.ID, noted.Quantity, noted.UserID, noted.SaleID)
	}
	return stored, nil
}

// admit asks Redis for the order, unless Postgres knows it: an order that an earlier try made may have ended since, and its
// slot be free, so that asking again would take units twice.
func (r *Replayer) admit(ctx context.Context, letter *Letter, sale *pipeline.Sale, as ReplayAs, orderID string) error {
	if _, err := r.store.Order(ctx, sale.ID, orderID); pipeline.KindOf(err) != pipeline.KindNotFound {
		return err
	}
	outcome, err := r.call(ctx, sale, lua.AdmitRequest{OrderID: orderID, UserID: as.UserID, Quantity: as.Quantity})
	if err != nil || outcome.Code == lua.AdmitAccepted {
		return err
	}
	return refusedReplay(letter, sale, as, outcome)
}

// call numbers the order and asks for it, once: whoever repeats the replay repeats the call.
func (r *Replayer) call(ctx context.Context, sale *pipeline.Sale, request lua.AdmitRequest) (lua.AdmitOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	unknown := func(err error) (lua.AdmitOutcome, error) {
		return lua.AdmitOutcome{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer as it should, and the order may stand; repeat the replay")
	}
	numbers := make([]int64, 1)
	if err := r.numbers.Take(ctx, numbers); err != nil {
		return unknown(err)
	}
	request.Number = numbers[0]
	p := sale.PartitionOf(request.UserID)
	reply, err := lua.Admit(ctx, r.rdb, r.keys.ForSale(p, sale.ID), sale.ID, pipeline.DefaultStreamMaxLag, []lua.AdmitRequest{request})
	if err != nil {
		return unknown(err)
	}
	return reply.Outcomes[0], nil
}

// refusedReplay says in plain words why Redis takes no such order now.
func refusedReplay(letter *Letter, sale *pipeline.Sale, as ReplayAs, outcome lua.AdmitOutcome) error {
	switch outcome.Code {
	case lua.AdmitUntrusted:
		return pipeline.Errorf(pipeline.KindNotLoaded, "dead letter %d can't be replayed now: Redis is being verified after a restart; repeat it", letter.ID)
	case lua.AdmitBacklogFull:
		return pipeline.Errorf(pipeline.KindOverloaded, "dead letter %d can't be replayed now: too many orders wait for the workers; repeat it", letter.ID)
	case lua.AdmitNotLoaded:
		return pipeline.Errorf(pipeline.KindNotLoaded, "dead letter %d can't be replayed: Redis does not hold sale %s", letter.ID, sale.ID)
	case lua.AdmitSoldOut:
		return cantBeTaken(letter, fmt.Sprintf("sale %s has fewer than %d units left; restock it, or wait until some come back", sale.ID, as.Quantity))
	case lua.AdmitAlreadyOrdered, lua.AdmitReplayed, lua.AdmitKeyReused:
		return cantBeTaken(letter, fmt.Sprintf("buyer %s has order %s in sale %s already", as.UserID, outcome.Slot.OrderID, sale.ID))
	case lua.AdmitNotOpen:
		return cantBeTaken(letter, fmt.Sprintf("sale %s is not open yet; it opens at %s", sale.ID, pipeline.FormatTime(sale.OpensAt)))
	case lua.AdmitClosed:
		return cantBeTaken(letter, fmt.Sprintf("sale %s is closed", sale.ID))
	case lua.AdmitPaused:
		return cantBeTaken(letter, fmt.Sprintf("sale %s is paused; resume it first", sale.ID))
	case lua.AdmitOverLimit:
		return cantBeTaken(letter, fmt.Sprintf("%d units are more than the %d that sale %s allows in one order", as.Quantity, sale.MaxQuantity, sale.ID))
	default:
		return pipeline.Errorf(pipeline.KindUnavailable, "dead letter %d can't be replayed now: Redis answers %s", letter.ID, outcome.Code)
	}
}

func cantBeTaken(letter *Letter, why string) error {
	return pipeline.Errorf(pipeline.KindConflict, "dead letter %d can't be replayed now: %s", letter.ID, why)
}

// payloadField is the value of a payload's field as the stream held it, unless it was cut.
func payloadField(l *Letter, name string) (string, bool) {
	switch value := l.Payload[name].(type) {
	case string:
		return value, true
	case map[string]any:
		encoded, _ := value["base64"].(string)
		plain, err := base64.StdEncoding.DecodeString(encoded)
		return string(plain), err == nil
	default:
		return "", false
	}
}

// resolvedError says that a letter is done with, since when and how; nil while it is not.
func resolvedError(l *Letter) error {
	switch l.Resolution {
	case "":
		return nil
	case Replayed:
		return pipeline.Errorf(pipeline.KindConflict, "dead letter %d was replayed at %s as order %s; nothing is left to do",
			l.ID, pipeline.FormatTime(l.ResolvedAt), l.ReplayID)
	default:
		return pipeline.Errorf(pipeline.KindConflict, "dead letter %d was %s at %s; nothing is left to do", l.ID, l.Resolution, pipeline.FormatTime(l.ResolvedAt))
	}
}
