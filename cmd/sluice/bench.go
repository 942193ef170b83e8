package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"sluice/internal/loadgen"
	"sluice/internal/table"
	"sluice/pipeline"
)

// The bounds of a load on somebody's installation.
const (
	maxBenchRate     = 100_000
	maxBenchDuration = time.Hour
	maxSaleBody      = 64 << 10 // of the answer about the sale
	saleTimeout      = 5 * time.Second
)

type benchCmd struct {
	URL         string        `name:"url" required:"" placeholder:"URL" help:"Address of the API, for instance http://127.0.0.1:8080."`
	Sale        string        `required:"" placeholder:"ID" help:"The sale that the orders are placed in. Make one for this."`
	Rate        float64       `required:"" placeholder:"N" help:"Orders per second, on average; they arrive at random and wait for nobody. At most 100000."`
	Duration    time.Duration `default:"30s" placeholder:"TIME" help:"How long to measure, at most 1h; default 30s."`
	WarmUp      time.Duration `default:"2s" placeholder:"TIME" help:"How long to send before that, without counting; default 2s."`
	Connections int           `default:"256" placeholder:"N" help:"Kept connections, 1 to 4096; default 256. Buyers who find all of them busy wait."`
	Quantity    int           `default:"1" placeholder:"UNITS" help:"Units in each order; default 1."`
	Header      []string      `sep:"none" placeholder:"NAME: VALUE" help:"A header to send with each request; may be repeated."`
	UserHeader  string        `default:"X-User-Id" placeholder:"NAME" help:"Header that names the buyer; default X-User-Id."`
	Seed        uint64        `placeholder:"N" help:"Seed of buyers and arrivals; default: a new one each time, because buyers who come again are refused."`
	Yes         bool          `help:"Place the orders without being asked."`
}

// Run places orders by a schedule, and shows how long the buyers waited.
func (c *benchCmd) Run(a *app) error {
	load, err := c.load()
	if err != nil {
		return err
	}
	remaining, err := c.remaining(a.ctx, load.Headers)
	if err != nil {
		return err
	}
	c.warn(a.err, load, remaining)
	if err := c.confirm(a); err != nil {
		return err
	}
	generator, err := loadgen.Open(a.ctx, load)
	if err != nil {
		return interruptedOr(a.ctx, fmt.Errorf("%s does not take the connections: %w", c.URL, err))
	}
	defer generator.Close()
	sayf(a.err, "Sending for %s …", load.WarmUp+load.Length)
	result, err := generator.Run(a.ctx)
	if printErr := a.printBench(load, &result); printErr != nil {
		return printErr
	}
	if err == nil && result.Errors.Count > 0 {
		err = errFound
	}
	return err
}

// load checks the flags, by their names.
func (c *benchCmd) load() (loadgen.Config, error) {
	headers, err := readHeaders(c.Header)
	if err != nil {
		return loadgen.Config{}, err
	}
	switch {
	case !pipeline.ValidSaleID(c.Sale):
		return loadgen.Config{}, usagef("--sale %q is not the id of a sale", c.Sale)
	case !(c.Rate > 0 && c.Rate <= maxBenchRate):
		return loadgen.Config{}, usagef("--rate %g: use more than 0 and at most %d", c.Rate, maxBenchRate)
	case c.Duration <= 0 || c.Duration > maxBenchDuration:
		return loadgen.Config{}, usagef("--duration %s: use more than 0s and at most %s", c.Duration, maxBenchDuration)
	case c.WarmUp < 0 || c.WarmUp > maxBenchDuration:
		return loadgen.Config{}, usagef("--warm-up %s: use 0s to %s", c.WarmUp, maxBenchDuration)
	case c.Connections < 1 || c.Connections > loadgen.MaxConnections:
		return loadgen.Config{}, usagef("--connections %d: use 1 to %d", c.Connections, loadgen.MaxConnections)
	case c.Quantity < 1:
		return loadgen.Config{}, usagef("--quantity %d: use 1 or more", c.Quantity)
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	load := loadgen.Config{
		URL: c.URL, Sales: []string{c.Sale}, Quantity: c.Quantity, Headers: headers, UserHeader: c.UserHeader, Keys: true,
		Connections: c.Connections, Rate: c.Rate, WarmUp: c.WarmUp, Length: c.Duration, Seed: c.Seed,
	}
	if err := load.Validate(); err != nil {
		return load, usagef("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return load, nil
}

func readHeaders(lines []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usagef(`--header %.40q is not of the form "Name: value"`, line)
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers, nil
}

// remaining asks for the sale, so that a wrong address or id is told before anything is ordered. It returns the units
// that the API says are left, as text.
func (c *benchCmd) remaining(ctx context.Context, headers map[string]string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, saleTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(c.URL, "/")+"/v1/sales/"+c.Sale, nil)
	if err != nil {
		return "", usagef("--url %q is not an address", c.URL)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("%s does not answer: %w", c.URL, deepest(err))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxSaleBody))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return "", fmt.Errorf("%s does not answer: %w", c.URL, deepest(err))
	}
	switch response.StatusCode {
	case http.StatusOK:
		return remainingIn(body), nil
	case http.StatusNotFound:
		return "", usagef("%s has no sale %s", c.URL, c.Sale)
	default:
		return "", fmt.Errorf("%s answers with status %d when asked for the sale %s", c.URL, response.StatusCode, c.Sale)
	}
}

// warn says what the command is about to do, so that nobody can say that they didn't know.
func (c *benchCmd) warn(w io.Writer, load loadgen.Config, remaining string) {
	orders := int64(load.Rate * (load.WarmUp + load.Length).Seconds())
	line := strings.Repeat("!", 98)
	sayf(w, "%s", line)
	sayf(w, "!! WARNING: this places about %s REAL ORDERS in the sale %s at %s.", table.Number(max(orders, 1)),
		c.Sale, c.URL)
	sayf(w, "!! Each takes REAL STOCK away from customers, until it expires or is cancelled. Left now: %s.", remaining)
	sayf(w, "!! Workers store them, payments become due, and events go to every endpoint that is registered.")
	sayf(w, "!! Use a sale that was made for this, never one that customers can see.")
	sayf(w, "%s", line)
}

// confirm returns nil if --yes was given or the sale's id is typed.
func (c *benchCmd) confirm(a *app) error {
	if c.Yes {
		return nil
	}
	fmt.Fprintf(a.err, "Type the sale's id to go on: ")
	typed := make(chan string, 1)
	go func() { // a terminal can't be read with a deadline; it ends with its line, or with the program
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no line is no id
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-a.ctx.Done():
		return a.ctx.Err()
	case id := <-typed:
		if id == c.Sale {
			return nil
		}
		sayf(a.err, "")
		return usagef("nothing was ordered: %.80q is not the id of the sale; type it, or use --yes", id)
	}
}
