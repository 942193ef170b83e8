package console_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is a real browser, driven as somebody drives it.
type chromium struct {
	*rig
	ctx context.Context

	mu         sync.Mutex // protects complaints
	complaints []string   // of the browser: errors of scripts, and what the policy has blocked
}

// browsers are the names under which systems have Chromium.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"}

// seesLimit bounds each wait for what a page is to say: on a busy machine a browser is slow, too.
const seesLimit = 2 * time.Minute

// browserLimit bounds what one test asks of the browser.
const browserLimit = 10 * time.Minute

// requireChromium skips a test where there is no Chromium, before anything else is started for it.
func requireChromium(t *testing.T) string {
	t.Helper()
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium is installed; on Debian: apt-get install chromium")
	return ""
}

func openChromium(r *rig, path string) *chromium {
	r.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, // root has none
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	bound, cancel := context.WithTimeout(context.Background(), browserLimit)
	r.Cleanup(cancel)
	process, end := chromedp.NewExecAllocator(bound, options...)
	r.Cleanup(end)
	ctx, shut := chromedp.NewContext(process)
	r.Cleanup(shut)
	c := &chromium{rig: r, ctx: ctx}
	c.run("start", chromedp.EmulateViewport(1280, 900), tell(cdplog.Enable, cdp.Empty{}))
	must(r, chromedp.Listen(ctx, c.hear))
	return c
}

// hear notes what a browser complains about: an answer with an error is not the page's fault.
func (c *chromium) hear(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		c.complaints = append(c.complaints, e.ExceptionDetails.Text+" "+e.ExceptionDetails.URL)
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError && e.Entry.Source != cdplog.EntrySourceNetwork {
			c.complaints = append(c.complaints, e.Entry.Text)
		}
	}
}

func (c *chromium) noComplaints() {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, complaint := range c.complaints {
		c.Errorf("the browser says: %s", complaint)
	}
	c.complaints = nil
}

// deed is something that somebody does in a browser.
type deed = chromedp.Action[chromedp.Void]

// tell is a command of the browser's own.
func tell[P any](command cdp.Command[P, cdp.Empty], params P) deed {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// does runs a script.
func does(script string) deed { return chromedp.Evaluate[chromedp.Void](script) }

func (c *chromium) run(what string, deeds ...deed) {
	c.Helper()
	if err := chromedp.Do(c.ctx, deeds...); err != nil {
		c.Fatalf("%s: %v; the page says: %s", what, err, c.text())
	}
}

func (c *chromium) open(path string) {
	c.Helper()
	c.run("open "+path, chromedp.Navigate(c.url+path), chromedp.WaitReady("main"))
}

// text is what the page says now.
func (c *chromium) text() string {
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("main")?.innerText ?? ""`))
	if err != nil {
		return "" // it navigates just now
	}
	return spaces.ReplaceAllString(text, " ")
}

// sees waits until the page says something, by itself.
func (c *chromium) sees(want string) {
	c.Helper()
	deadline := time.Now().Add(seesLimit)
	for !strings.Contains(c.text(), want) {
		if time.Now().After(deadline) {
			c.Fatalf("waited in vain for %q; the page says: %s", want, c.text())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// scheme shows the page in light or dark.
func (c *chromium) scheme(name string) {
	c.Helper()
	c.run(name, tell(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	}))
}

// shots is where screenshots are written; empty: nowhere.
var shots = os.Getenv("CONSOLE_SCREENSHOTS")

// shoot writes pictures of the page as it is, for a desktop and for a phone.
func (c *chromium) shoot(name string) {
	c.Helper()
	if shots == "" {
		return
	}
	for _, as := range []struct {
		device        string
		width, height int64
		scheme        string
	}{{"desktop", 1280, 860, "light"}, {"dark", 1280, 860, "dark"}, {"phone", 390, 844, "light"}} {
		if as.device == "dark" && name != "overview" && name != "sale" {
			continue
		}
		c.scheme(as.scheme)
		c.run("shoot", chromedp.EmulateViewport(as.width, as.height), does(`scrollTo(0, 0)`),
			chromedp.Sleep(400*time.Millisecond))
		png, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
		must(c, err)
		must(c, os.WriteFile(filepath.Join(shots, name+"-"+as.device+".png"), png, 0o644))
	}
	c.scheme("light")
	c.run("back", chromedp.EmulateViewport(1280, 900))
}
