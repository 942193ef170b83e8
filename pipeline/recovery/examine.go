package recovery

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/retry"
)

// marksPage is how many sales' marks are read in one round trip.
const marksPage = 500

// LedgerStore is what is needed of Postgres to find out that it has forgotten something, and to store it again.
type LedgerStore interface {
	deadletter.BuryStore
	// ServerIdentity names the server that answers.
	ServerIdentity(ctx context.Context) (string, error)
	// RecordExamined says that a server's rows are all that Redis knows of.
	RecordExamined(ctx context.Context, identity string) error
	LedgerMarks(ctx context.Context) ([]LedgerMark, error)
	CountReleases(ctx context.Context, at pipeline.SalePartition) (all, applied int64, err error)
	// WriteOffReleases says how many releases Postgres lacks for good.
	WriteOffReleases(ctx context.Context, at pipeline.SalePartition, lost int64) error
	// EverExamined reports whether any server of this database ever was.
	EverExamined(ctx context.Context) (bool, error)
	// BeginLedgerLoss records a loss with the sales of which rows were forgotten, once until it is finished, and returns
	// what was recorded.
	BeginLedgerLoss(ctx context.Context, behind []SaleLoss) (BegunLoss, error)
	UnfinishedLedgerLoss(ctx context.Context) (bool, error)
	FinishLedgerLoss(ctx context.Context, g pipeline.Generation, identity string, sales []SaleLoss) error
	homeStore
}

// comparison is what of Postgres is compared with Redis.
type comparison int

const (
	everything comparison = iota
	stored                // orders only
	// baseline is everything, for the first time: what was lost before anybody looked was dealt with then.
	baseline
)

// marks are those that Redis keeps of a sale on a partition.
type marks struct {
	settled  int64 // rows of which a worker knew that they were stored, by Postgres' own count
	released int64 // releases that gave something back
	// The latest move of units that the partition knows, and a number up to which it knows that all have ended.
	latestMove, movesDone int64
}

// examine compares a Postgres that restarted, or took another's place, with the marks that Redis keeps. What it has
// forgotten is stored again; what has forgotten nothing may store orders from then on. The lease of verifications is
// held meanwhile.
func (v *Verifier) examine(ctx context.Context) error {
	identity, err := v.Ledger.ServerIdentity(ctx)
	if err != nil {
		return err
	}
	ever, err := v.Ledger.EverExamined(ctx)
	if err != nil {
		return err
	}
	what := everything
	if !ever {
		what = baseline
	}
	forgot, err := v.forgot(ctx, what)
	if err != nil {
		return err
	}
	if forgot {
		return v.bringHome(ctx, identity)
	}
	if err := v.Ledger.RecordExamined(ctx, identity); err != nil {
		return err
	}
	v.Log.Info("Postgres restarted or was replaced, and has all that Redis knows of")
	_, err = v.Fence.Refresh(ctx)
	return err
}

// forgot reports whether Postgres has forgotten something that Redis knows. Redis is read first: Postgres counts before
// a worker tells Redis, and only ever up, so that it can't seem to have forgotten because of what happens between the
// two. So no restart, no fail-over to a standby that has all, and no loss of Redis looks like one.
//
// Each release by which Redis gave something back has a row. Orders that end on another server before it is examined
// may hide that others had; where it runs on, releases are not looked at.
func (v *Verifier) forgot(ctx context.Context, what comparison) (bool, error) {
	if unfinished, err := v.Ledger.UnfinishedLedgerLoss(ctx); err != nil || unfinished {
		return unfinished, err
	}
	sales, err := v.Ledger.LedgerMarks(ctx)
	if err != nil {
		return false, err
	}
	kept, err := v.readMarks(ctx, sales)
	if err != nil {
		return false, err
	}
	sales, err = v.Ledger.LedgerMarks(ctx)
	if err != nil {
		return false, err
	}
	for _, m := range sales {
		has := kept[m.SalePartition]
		if has.settled > m.Stored {
			v.Log.Error("Postgres has forgotten orders: it was restored, or is a standby that lagged",
				"sale", m.SaleID, "partition", m.Partition, "stored", m.Stored, "settled", has.settled)
			return true, nil
		}
		// Postgres numbers a move before Redis is asked for units, and says which have ended: Redis never knows more.
		if m.Spread && (has.latestMove > m.Moves || has.movesDone > m.MovesDone) {
			v.Log.Error("Postgres has forgotten moves of units: it was restored, or is a standby that lagged",
				"sale", m.SaleID, "partition", m.Partition, "moves", m.Moves, "latest", has.latestMove,
				"ended", m.MovesDone, "known_ended", has.movesDone)
			return true, nil
		}
		if what == stored || has.released <= m.Released {
			continue
		}
		if forgot, err := v.forgotReleases(ctx, m, has.released, what); err != nil || forgot {
			return forgot, err
		}
	}
	return false, nil
}

// forgotReleases compares the releases of a sale on a partition, of which Redis has given so many back.
func (v *Verifier) forgotReleases(
	ctx context.Context, m LedgerMark, released int64, what comparison,
) (bool, error) {
	all, applied, err := v.Ledger.CountReleases(ctx, m.SalePartition)
	if err != nil || released <= all+m.ReleasesLost {
		return false, err
	}
	if what == baseline {
		return false, v.Ledger.WriteOffReleases(ctx, m.SalePartition, released-applied)
	}
	v.Log.Error("Postgres has forgotten that orders had ended: it was restored, or is a standby that lagged",
		"sale", m.SaleID, "partition", m.Partition, "releases", all, "released", released)
	return true, nil
}

// salesBehind returns the sales of which Redis knows more rows than Postgres has, with both numbers.
func (v *Verifier) salesBehind(ctx context.Context) ([]SaleLoss, error) {
	sales, err := v.Ledger.LedgerMarks(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := v.readMarks(ctx, sales)
	if err != nil {
		return nil, err
	}
	behind := []SaleLoss{}
	for _, m := range sales {
		if settled := kept[m.SalePartition].settled; settled > m.Stored {
			behind = append(behind, SaleLoss{
				SaleID: m.SaleID, Partition: m.Partition, Settled: settled, Stored: m.Stored,
			})
		}
	}
	return behind, nil
}

// readMarks reads the marks of sales. One that Redis lacks, or can't read, has none.
func (v *Verifier) readMarks(
	ctx context.Context, sales []LedgerMark,
) (map[pipeline.SalePartition]marks, error) {
	found := make(map[pipeline.SalePartition]marks, len(sales))
	for len(sales) > 0 {
		page := sales[:min(len(sales), marksPage)]
		sales = sales[len(page):]
		if err := v.readMarksPage(ctx, page, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (v *Verifier) readMarksPage(
	ctx context.Context, page []LedgerMark, into map[pipeline.SalePartition]marks,
) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := v.Redis.Pipeline()
	read, fields := make([]*redis.SliceCmd, len(page)), make([]*redis.StringSliceCmd, len(page))
	for i, m := range page {
		read[i] = pipe.HMGet(ctx, v.Keys.Sale(m.Partition, m.SaleID), "settled", "released", "moves_done")
		if m.Spread { // only those have fields of moves, as many as moves are under way
			fields[i] = pipe.HKeys(ctx, v.Keys.Sale(m.Partition, m.SaleID))
		}
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer with the marks of sales")
	}
	for i, m := range page {
		values, err := read[i].Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			continue
		}
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer with the marks of sales")
		}
		has := marks{settled: number(values[0]), released: number(values[1]), movesDone: number(values[2])}
		has.latestMove = has.movesDone
		if fields[i] != nil {
			names, err := fields[i].Result()
			if err != nil {
				return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not answer with the moves of a sale")
			}
			for _, field := range names {
				if half, move, ok := strings.Cut(field, ":"); ok && (half == "in" || half == "out") {
					has.latestMove = max(has.latestMove, number(move))
				}
			}
		}
		into[m.SalePartition] = has
	}
	return nil
}

// number is what Redis holds in a field; 0 where there is none, or it is not one of ours.
func number(value any) int64 {
	text, _ := value.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
