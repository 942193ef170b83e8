package main

import (
	"context"
	"io"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"
)

// cli is the whole command line. A command's fields are its flags; its Run does the work.
type cli struct {
	Settings settings `embed:"" group:"Settings (each is also an environment variable; the flag wins)"`
	JSON     bool     `name:"json" help:"Print JSON instead of a table."`

	Dev        devCmd        `cmd:"" help:"Run private servers, an API and workers in this terminal until ctrl-C."`
	Demo       demoCmd       `cmd:"" help:"Run a whole flash sale with thousands of buyers, kill a worker in the middle, and prove that nothing was lost."`
	Migrate    migrateCmd    `cmd:"" help:"Bring the database to the schema of this build."`
	Grants     grantsCmd     `cmd:"" help:"Print the GRANTs for separate Postgres roles of api, workers and command line."`
	Doctor     doctorCmd     `cmd:"" help:"Check servers and settings, and say what to do about what is wrong."`
	ACL        aclCmd        `cmd:"" name:"acl" help:"Print the commands that give the programs' users of Redis what they need, and no more."`
	Functions  functionsCmd  `cmd:"" help:"Load the scripts into Redis as functions, for REDIS_FUNCTIONS."`
	Sale       saleCmd       `cmd:"" help:"Create, show and change sales."`
	Order      orderCmd      `cmd:"" help:"List, search and export orders; show where one is, pay it, cancel it, return it or give it more time."`
	Payment    paymentCmd    `cmd:"" help:"List payments, and note which were paid back."`
	Stream     streamCmd     `cmd:"" help:"Show the order stream of each partition."`
	Pending    pendingCmd    `cmd:"" help:"Show the orders that were delivered to workers and not acknowledged."`
	DeadLetter deadLetterCmd `cmd:"" help:"List, show, replay and discard what could not become an order."`
	Event      eventCmd      `cmd:"" help:"List the events for other systems."`
	Endpoint   endpointCmd   `cmd:"" help:"Register, list, change and test the receivers of events about orders."`
	Token      tokenCmd      `cmd:"" help:"Make, list and revoke the tokens of operators."`
	Workers    workersCmd    `cmd:"" help:"Show the workers, and which are alive."`
	Log        logCmd        `cmd:"" help:"Read the audit log: who did what, when, before and after."`
	Buyer      buyerCmd      `cmd:"" help:"Show what is stored of a buyer, and erase a buyer."`
	Retention  retentionCmd  `cmd:"" help:"Show how long orders are kept, what was dropped, and what holds a sale back."`
	Audit      auditCmd      `cmd:"" help:"Prove that no unit was lost, sold twice or leaked. Exit code 1 if one was."`
	Rebuild    rebuildCmd    `cmd:"" help:"Show what a sale would be in Redis if it were rebuilt from Postgres and the stream; with --apply, do it."`
	Ledger     ledgerCmd     `cmd:"" help:"Show when Postgres had gone back, what was stored again, and what to ask the payment provider."`
	Journal    journalCmd    `cmd:"" help:"List, check and replay the accept journals of apis."`
	Bench      benchCmd      `cmd:"" help:"Place real orders by a schedule, on your own installation, and show how long buyers wait. It asks first."`
	Health     healthCmd     `cmd:"" help:"Ask a health address; exit code 0 if it answers well."`
	Version    versionCmd    `cmd:"" help:"Show the version of this program."`
}

// app is what every command works with.
type app struct {
	ctx      context.Context
	settings *settings
	json     bool
	out, err io.Writer
}

// execute parses the arguments and runs the command. It returns the exit code.
func execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	var c cli
	parser, err := kong.New(&c, kong.Name("sluice"), kong.Writers(out, errOut),
		kong.Description("A flash-sale order pipeline on Redis Streams and Postgres."),
		kong.WithHyphenPrefixedParameters(true), // so that --stock -1 gets the answer of a stock, not of a flag
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return report(errOut, err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return report(errOut, usageError(err))
	}
	if err := emptyFilter(parsed); err != nil {
		return report(errOut, err)
	}
	a := &app{ctx: ctx, settings: &c.Settings, json: c.JSON, out: out, err: errOut}
	return report(errOut, a.run(parsed))
}

// filters are flags that choose what a command shows.
var filters = []string{
	"sale", "order", "buyer", "status", "since", "until", "payment-id", "payment", "actor", "action", "type",
}

// emptyFilter refuses a filter that was given without a value: a variable that is not set must not choose everything.
func emptyFilter(parsed *kong.Context) error {
	for _, flag := range parsed.Flags() {
		if flag.Set && slices.Contains(filters, flag.Name) && flag.Target.Kind() == reflect.String && flag.Target.Len() == 0 {
			return usagef("--%s is empty: give it a value, or leave it out", flag.Name)
		}
	}
	return nil
}
