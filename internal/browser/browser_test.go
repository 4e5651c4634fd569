package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

var (
	pictures = flag.String("pictures", "../../.build/browser", "folder for a picture of each page")
	update   = flag.Bool("update", false, "take the pictures of the READMEs of inspect and plan anew")
)

// newBrowser starts Chromium. What a page complains about, such as a violation of its Content-Security-Policy, fails
// the test.
func newBrowser(t *testing.T) context.Context {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(time.Minute))
	allocator, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err, "is chromium installed? On Debian: apt-get install chromium")
	var mu sync.Mutex
	var complaints []string
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			complaints = append(complaints, e.Entry.Text)
		case *runtime.EventExceptionThrown:
			complaints = append(complaints, e.ExceptionDetails.Text)
		}
	}))
	ctx, cancel = context.WithTimeout(ctx, 9*time.Minute)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, complaints)
	})
	return ctx
}

// get returns what an action returns.
func get[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	value, err := chromedp.Run(ctx, action)
	require.NoError(t, err)
	return value
}

type step = chromedp.Action[chromedp.Void]

func do(t *testing.T, ctx context.Context, steps ...step) {
	require.NoError(t, chromedp.Do(ctx, steps...))
}

func keyPath(name string) string {
	return "key?" + url.Values{"controller": {"sites"}, "namespace": {"default"}, "name": {name}}.Encode()
}

// pages are the pages of the world that are looked at, by the names of their pictures.
var pages = []struct{ name, path string }{{"key", keyPath(parked)}, {"overview", ""}, {"keys", "keys?controller=sites"},
	{"failing", keyPath(failing)}, {"failed", keyPath(terminal)}, {"hot", keyPath(hot)}}

func TestPages(t *testing.T) {
	w, ctx := newWorld(t), newBrowser(t)
	live := chromedp.WaitVisible(`#live[aria-pressed="true"]`)
	for _, page := range pages {
		takePictures(t, ctx, page.name, w.address+page.path, live)
		if *update && page.name == "key" {
			require.Equal(t, status.KeyParked, w.state(parked), "pictures/key.png shows a key that is parked")
		}
	}
	t.Run("live", func(t *testing.T) { testLive(t, w, ctx) })
	t.Run("actions", func(t *testing.T) { testActions(t, w, ctx) })
	t.Run("search", func(t *testing.T) { testSearch(t, w, ctx) })
	t.Run("without JavaScript", func(t *testing.T) { testWithoutScript(t, w, ctx) })
}

// shownIn are the packages of reconcile whose READMEs show a picture, by its name.
var shownIn = map[string]string{"overview": "inspect", "key": "inspect", "etcd": "plan"}

// takePictures takes a picture of a page, light and dark, on a screen and on a telephone. No page is wider than that.
func takePictures(t *testing.T, ctx context.Context, name, address string, ready step) {
	require.NoError(t, os.MkdirAll(*pictures, 0o755))
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			require.NoError(t, err)
			do(t, ctx, chromedp.EmulateViewport(width, 800), chromedp.Navigate(address), ready)
			overflow := get(t, ctx, chromedp.Evaluate[bool](
				"document.documentElement.scrollWidth > window.innerWidth"))
			picture := get(t, ctx, chromedp.FullScreenshot(100))
			file := fmt.Sprintf("%s-%d-%s.png", name, width, scheme)
			require.NoError(t, os.WriteFile(filepath.Join(*pictures, file), picture, 0o644))
			require.False(t, overflow, "%s is wider than %d", name, width)
			if folder, ok := shownIn[name]; ok && *update && width == 1280 && scheme == "light" {
				file := filepath.Join("../../reconcile", folder, "pictures", name+".png")
				if folder == "plan" { // whose page is long
					picture = top(t, picture)
				}
				require.NoError(t, os.WriteFile(file, picture, 0o644))
			}
		}
	}
}

// top returns the upper part of a picture that is as long as its page, for a README.
func top(t *testing.T, picture []byte) []byte {
	whole, err := png.Decode(bytes.NewReader(picture))
	require.NoError(t, err)
	upper := image.NewRGBA(image.Rect(0, 0, whole.Bounds().Dx(), min(whole.Bounds().Dy(), 1100)))
	draw.Draw(upper, upper.Bounds(), whole, image.Point{}, draw.Src)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, upper))
	return out.Bytes()
}

// until evaluates an expression until it is true, in this page or in one that is loaded meanwhile.
func until(expression string) step {
	evaluate := chromedp.Evaluate[bool](expression)
	return func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var is bool
			if is, err = evaluate(ctx, target); is {
				return none, nil
			}
		}
		return none, fmt.Errorf("does not become true: %s: %w", expression, err)
	}
}

// text waits until an element has a text.
func text(selector, want string) step {
	return until(fmt.Sprintf("!!document.querySelector(%q)?.innerText.includes(%q)", selector, want))
}

// click clicks once on an element as soon as it is there. A page that is followed puts new elements in the place of
// the old at any moment, so the search and the click are one expression.
func click(selector string) step {
	return until(fmt.Sprintf(`(e => { if (e) e.click(); return !!e })(document.querySelector(%q))`, selector))
}

// testLive changes what a page shows while it is open. The page is not loaded again.
func testLive(t *testing.T, w *world, ctx context.Context) {
	do(t, ctx, chromedp.Navigate(w.address+keyPath(calm)), text("h1", "settled"))
	get(t, ctx, chromedp.Evaluate[bool]("window.kept = true"))
	key := namespaced(calm)
	w.controller.Pause(key)
	w.controller.Enqueue(key)
	do(t, ctx, text("h1", "paused"), click("#live"), text("#live", "Paused"))
	w.controller.Resume(key)
	do(t, ctx, chromedp.Sleep(1500*time.Millisecond), text("h1", "paused"), click("#live"),
		text("h1", "settled"))
	require.True(t, get(t, ctx, chromedp.Evaluate[bool]("window.kept")))
}

// press presses a button of a key's page, and waits until the page has been loaded anew.
func press(button string) step {
	marked := until(fmt.Sprintf(`(e => { if (e) { window.old = true; e.click() } return !!e })`+
		`(document.querySelector('button[value=%q]'))`, button))
	loaded := until(`!window.old && document.readyState === "complete"`)
	return func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		if _, err := marked(ctx, target); err != nil {
			return none, err
		}
		return loaded(ctx, target)
	}
}

// testActions presses the buttons.
func testActions(t *testing.T, w *world, ctx context.Context) {
	do(t, ctx, chromedp.Navigate(w.address+keyPath(calm)), press("pause"), text("h1", "paused"))
	before := w.calmRuns.Load()
	do(t, ctx, press("reconcile"), text("h1", "paused"))
	require.Equal(t, before, w.calmRuns.Load(), "a key that is paused does not run")
	do(t, ctx, press("resume"), text("h1", "settled"))
	w.await(t, "the key has run", func() bool { return w.calmRuns.Load() == before+1 })
	do(t, ctx, press("reconcile"))
	w.await(t, "the key has run again", func() bool { return w.calmRuns.Load() == before+2 })
}

// testSearch finds one of 10,000 keys.
func testSearch(t *testing.T, w *world, ctx context.Context) {
	do(t, ctx, chromedp.Navigate(w.address+"keys?controller=sites"), text(".pager", "10,000"),
		chromedp.SetValue(`input[type="search"]`, "site-04711"), chromedp.Submit("form.filter"),
		text(".pager", "1–1 of 1"), click("tbody a"), text("h1", "default/site-04711"))
	location := get(t, ctx, chromedp.Location())
	require.True(t, strings.HasSuffix(location, keyPath("site-04711")), location)
}

func testWithoutScript(t *testing.T, w *world, ctx context.Context) {
	_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{
		Value: true})
	require.NoError(t, err)
	for _, page := range pages {
		do(t, ctx, chromedp.Navigate(w.address+page.path))
		html, read := "", chromedp.OuterHTML("html")
		require.Eventually(t, func() bool { // such a page loads itself anew every 5 s, perhaps at this moment
			html, err = chromedp.Run(ctx, read)
			return err == nil && strings.Contains(html, "<main")
		}, time.Minute, 20*time.Millisecond, page.name)
		require.NotContains(t, html, "aria-pressed", "the script does not run")
	}
}
