package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"sluice/internal/view"
	"sluice/pipeline/lifecycle"
)

// exportBuffer holds about a page of orders.
const exportBuffer = 512 << 10

type orderExport struct {
	orderChoice
	Format string `default:"csv" enum:"csv,jsonl" placeholder:"WORD" help:"csv, or jsonl for one JSON object per line; default csv."`
	Output string `placeholder:"FILE" help:"A new file, which is there once it is complete; default: standard output."`
}

// Run writes all orders that the flags choose. An export that breaks off ends with exit code 1 and a last line that
// says so; with --output there is no file then.
func (c *orderExport) Run(a *app) error {
	filter, err := c.filter(lifecycle.MaxListedOrders)
	if err != nil {
		return err
	}
	format := view.ExportFormat(c.Format)
	if a.json {
		format = view.JSONLines
	}
	return a.withPostgres(func(s *stores) error {
		write := func(to io.Writer) (int64, error) { return exportOrders(a, s, filter, format, to) }
		if c.Output == "" {
			_, err := write(a.out)
			return err
		}
		return c.toFile(a, write)
	})
}

// exportOrders writes the orders, and returns how many.
func exportOrders(
	a *app, s *stores, filter lifecycle.OrderFilter, format view.ExportFormat, to io.Writer,
) (int64, error) {
	buffered := bufio.NewWriterSize(to, exportBuffer)
	export := view.NewOrderExport(format, buffered)
	err := lifecycle.EachOrderPage(a.ctx, s.postgres, filter, export.Write)
	if err != nil {
		_ = export.BreakOff("the export was broken off; start it again")
	}
	if err = errors.Join(err, buffered.Flush()); err != nil { // the reader may be what is gone
		return export.Orders(), unavailable(err, fmt.Sprintf("the export was broken off after %d orders", export.Orders()))
	}
	return export.Orders(), nil
}

// toFile writes into a file beside the one that is wanted, and gives it its name when it is complete and on disk.
func (c *orderExport) toFile(a *app, write func(io.Writer) (int64, error)) (err error) {
	if _, err := os.Lstat(c.Output); !errors.Is(err, fs.ErrNotExist) {
		return usagef("--output %s exists, or can't be looked at; name a new file", oneLine(c.Output))
	}
	partial := c.Output + ".partial"
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // orders name buyers
	if err != nil {
		return usagef("--output: %s", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(partial))
		}
	}()
	orders, err := write(file)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), os.Rename(partial, c.Output)); err != nil {
		return err
	}
	_ = file.Close() // all of it is on disk
	return a.answer(struct {
		File   string `json:"file"`
		Orders int64  `json:"orders"`
	}{c.Output, orders}, "%d orders are in %s.", orders, c.Output)
}
