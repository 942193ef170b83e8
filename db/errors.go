package db

import (
	"errors"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/pipeline"
)

// The SQLSTATE codes and classes that are handled here (PostgreSQL documentation, appendix A).
const (
	codeUniqueViolation      = "23505"
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeUndefinedTable       = "42P01"

	classDataException       = "22"
	classConstraintViolation = "23"
)

// violations are messages for broken constraints, for those that a caller's values can break.
var violations = map[string]string{
	"sales_pkey":                   "a sale with this id exists",
	"sales_sold_within_total":      "more units would be sold than the sale has",
	"sales_withdrawn_within_total": "more units would be sold than the sale has left, beside those withdrawn",
	"sales_earlier_prices_bounds":  "its price was changed 100 times, which is as often as it can be",
	"sales_window_order":           "the sale would close before it opens",
	"sales_total_bounds":           "the stock is out of bounds",
	"orders_live_buyer_key":        "the buyer has a live order in this sale",
	"orders_number_key":            "another order has this number",
	"orders_number_positive":       "the order number is not positive",
	"orders_user_id_bounds":        "the user id is empty or too long",
	"orders_quantity_bounds":       "the quantity is out of bounds",
	"orders_partition_bounds":      "the partition is out of bounds",
	"orders_sequence_positive":     "the sequence is not positive",
	"dead_letters_reason_set":      "a dead letter needs a reason",
	"audit_log_actor_bounds":       "the actor is empty or too long",
	"waitlist_user_id_bounds":      "the user id is empty or too long",
	"waitlist_quantity_bounds":     "the quantity is out of bounds",
	"waitlist_ticket_key":          "another entry has this ticket",
	"watermarks_partition_bounds":  "the partition is out of bounds",
	"endpoints_url_bounds":         "the URL is empty or too long",
}

// wrap turns an error of pgx into a pipeline.Error; nil stays nil and a pipeline.Error stays what it is. Only a refusal
// of the values themselves is KindData. All the rest (no connection, no time, no space, a lock that was not granted, a
// schema that is not there yet) may pass by itself or by an operator's help: KindUnavailable.
func wrap(err error, what string) error {
	if err == nil || pipeline.KindOf(err) != "" {
		return err
	}
	refused := refusal(err)
	if refused == nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, what+": Postgres did not answer as it should")
	}
	if text, ok := violations[constraintOf(refused)]; ok {
		return pipeline.Wrap(pipeline.KindData, err, what+": "+text)
	}
	return pipeline.Wrap(pipeline.KindData, err, what+": Postgres refuses a value")
}

// refusal returns the error in which Postgres refused a value, or nil if this is another kind of error.
func refusal(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if !errors.As(err, &e) || len(e.Code) != 5 {
		return nil
	}
	switch e.Code[:2] {
	case classDataException, classConstraintViolation:
		return e
	default:
		return nil
	}
}

// breaks reports whether an error is the violation of a certain constraint.
func breaks(err error, constraint string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && constraintOf(e) == constraint
}

// namedConstraint finds the name of a constraint in the message of a violation, without the number of its shard.
var namedConstraint = regexp.MustCompile(`constraint "(.+?)(_[0-9]{6,})?"`)

// constraintOf is the name of the constraint that an error violates. Of a violation on another node, Citus passes on
// the message alone, with the constraint's name on its shard.
func constraintOf(e *pgconn.PgError) string {
	if e.ConstraintName != "" {
		return e.ConstraintName
	}
	if found := namedConstraint.FindStringSubmatch(e.Message); found != nil {
		return found[1]
	}
	return ""
}

func isUndefinedTable(err error) bool { return hasCode(err, codeUndefinedTable) }

func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

// badURL reports a DATABASE_URL that can't be parsed. pgx leaves the password out of its error.
func badURL(err error) error {
	return pipeline.Wrap(pipeline.KindInvalid, err, "DATABASE_URL can't be used")
}
