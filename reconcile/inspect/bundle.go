package inspect

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// bundleVersion is the version of the format that the package's doc describes.
const bundleVersion = 1

const (
	// maxDetails is how many keys of a controller a bundle has in full: the most urgent ones.
	maxDetails = 5_000
	// keysPerLine is how many keys a line of a bundle has.
	keysPerLine = 500
)

// Bundle is what a Manager and all its keys looked like at one time, for a bug report. It has no value of an object.
// [WriteBundle] writes one, and [ReadBundle] reads it.
type Bundle struct {
	Created time.Time
	// Program is the main module of the process, with its version, and Go the version of Go.
	Program, Go string
	Manager     status.Manager
	// Keys are all keys, by controller, and Details what is known of the most urgent of them.
	Keys    map[string][]status.KeySummary
	Details map[string]map[reconcile.Key]status.Key

	damage error // what ReadBundle has returned together with the bundle, or nil
}

// line is a line of a bundle. One of the fields is set.
type line struct {
	Bundle  *bundleHead     `json:"bundle,omitempty"`
	Manager *status.Manager `json:"manager,omitempty"`
	Keys    *bundleKeys     `json:"keys,omitempty"`
	Key     *status.Key     `json:"key,omitempty"`
	End     *bundleEnd      `json:"end,omitempty"`
}

type bundleHead struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	Program string    `json:"program,omitempty"`
	Go      string    `json:"go,omitempty"`
}

type bundleKeys struct {
	Controller string              `json:"controller"`
	Keys       []status.KeySummary `json:"keys"`
}

type bundleEnd struct {
	Lines int `json:"lines"` // before this one
}

// WriteBundle writes a bundle of m to w. It returns w's error, or that of ctx when ctx ends. Locks of the loop are held
// for as long as one key takes, or a part of the keys.
func WriteBundle(ctx context.Context, w io.Writer, m *reconcile.Manager) error {
	return writeBundle(ctx, w, managerSource{m})
}

func writeBundle(ctx context.Context, w io.Writer, from source) error {
	zipped := gzip.NewWriter(w)
	out, lines := json.NewEncoder(zipped), 0
	write := func(l line) error {
		lines++
		return errors.Join(ctx.Err(), out.Encode(l))
	}
	head := &bundleHead{Version: bundleVersion, Created: from.now()}
	if info, ok := debug.ReadBuildInfo(); ok {
		head.Program, head.Go = info.Main.Path+"@"+cmp.Or(info.Main.Version, "(devel)"), info.GoVersion
	}
	m := from.status()
	if err := errors.Join(write(line{Bundle: head}), write(line{Manager: &m})); err != nil {
		return err
	}
	for _, controller := range from.controllers() {
		keys, _ := from.keys(ctx, controller)
		q := keyQuery{Controller: controller, Sort: "state"}
		slices.SortFunc(keys, func(a, b status.KeySummary) int { return q.compare(&a, &b) })
		for part := range slices.Chunk(keys, keysPerLine) {
			if err := write(line{Keys: &bundleKeys{controller, part}}); err != nil {
				return err
			}
		}
		for _, k := range detailed(keys) {
			s, ok := from.key(ctx, controller, reconcile.Key{Namespace: k.Namespace, Name: k.Name})
			if !ok {
				continue
			}
			if err := write(line{Key: &s}); err != nil {
				return err
			}
		}
	}
	return errors.Join(write(line{End: &bundleEnd{lines}}), zipped.Close())
}

// detailed returns the keys that a bundle has in full. Those of which nothing but the name is known come last.
func detailed(keys []status.KeySummary) []status.KeySummary {
	known := slices.Clone(keys)
	slices.SortStableFunc(known, func(a, b status.KeySummary) int {
		plain := func(k status.KeySummary) int {
			if k.State == status.KeySettled && k.Runs == 0 {
				return 1
			}
			return 0
		}
		return cmp.Compare(plain(a), plain(b))
	})
	return known[:min(len(known), maxDetails)]
}

// bundleName is a name for the file of a bundle.
func bundleName(at time.Time) string {
	return "inspect-" + at.UTC().Format("20060102-150405") + ".jsonl.gz"
}

// Handler serves the pages of the bundle, as [Handler] does those of a Manager.
func (b *Bundle) Handler() http.Handler {
	return newHandler(Options{}, func(*http.Request) source { return b })
}

func (b *Bundle) now() time.Time { return b.Created }

func (b *Bundle) status() status.Manager { return b.Manager }

func (b *Bundle) controllers() (names []string) {
	for _, c := range b.Manager.Controllers {
		names = append(names, c.Name)
	}
	return names
}

func (b *Bundle) keys(_ context.Context, controller string) (all []status.KeySummary, ok bool) {
	return slices.Clone(b.Keys[controller]), slices.Contains(b.controllers(), controller)
}

func (b *Bundle) key(_ context.Context, controller string, key reconcile.Key) (s status.Key, ok bool) {
	s, ok = b.Details[controller][key]
	return s, ok
}
