// Command why says why a key is reconciled, or is not. It asks the pages of package reconcile/inspect, or reads a
// bundle.
//
//	kubectl port-forward deployment/web 8080 &
//	why default/web                 why the key default/web is, or is not, reconciled, and its last runs
//	why watch default/web           the same, each time that it changes, until Ctrl-C
//	why top                         the controllers, and the keys that need attention
//	why -bundle FILE default/web    from a bundle in place of a process; so can top
//	why serve FILE                  shows the pages of a bundle to a browser
//
// A key without a namespace is written /name. Its files: main.go, client.go (where the answers come from), text.go (how
// they are written).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

const usage = `why says why a key is reconciled, or is not.

	why [flags] NAMESPACE/NAME          why, and the last runs; a key without a namespace is /NAME
	why [flags] watch NAMESPACE/NAME    the same, each time that it changes
	why [flags] top                     the controllers, and the keys that need attention
	why serve FILE                      shows a bundle to a browser

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "why:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "why:", err)
		os.Exit(1)
	}
}

// errUsage is wrapped by the errors about the command line.
var errUsage = errors.New("see why -help")

// options are the flags.
type options struct {
	address, controller, bundle, token, serve string
	every                                     time.Duration
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	var o options
	flags := flag.NewFlagSet("why", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() {
		fmt.Fprint(errOut, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.address, "address", "http://localhost:8080/inspect/", "where the pages are served")
	flags.StringVar(&o.bundle, "bundle", "", "`file` with a bundle, to read in place of -address")
	flags.StringVar(&o.controller, "controller", "", "name of the controller; empty: all that know the key")
	flags.StringVar(&o.token, "token-file", "", "`file` with a bearer token, for a Manager with AccessReviews")
	flags.StringVar(&o.serve, "listen", "localhost:0", "where serve listens")
	flags.DurationVar(&o.every, "every", time.Second, "how often watch looks")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	rest := flags.Args()
	switch {
	case len(rest) == 2 && rest[0] == "serve":
		return serve(ctx, o.serve, rest[1], out, errOut)
	case o.every <= 0:
		return fmt.Errorf("-every is %s, and has to be positive: %w", o.every, errUsage)
	}
	from, err := newClient(o, errOut)
	if err != nil {
		return err
	}
	switch {
	case len(rest) == 1 && rest[0] == "top":
		return top(ctx, from, out)
	case len(rest) == 1:
		return ask(ctx, from, o, rest[0], out)
	case len(rest) == 2 && rest[0] == "watch" && o.bundle == "":
		return watch(ctx, from, o, rest[1], out)
	}
	return fmt.Errorf("expected NAMESPACE/NAME, watch NAMESPACE/NAME, top, or serve FILE: %w", errUsage)
}

// parseKey reads namespace/name, or /name.
func parseKey(text string) (key reconcile.Key, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return key, fmt.Errorf("%q is no key; one is NAMESPACE/NAME, or /NAME without a namespace: %w", text, errUsage)
	}
	return reconcile.Key{Namespace: namespace, Name: name}, nil
}

// ask writes what the controllers know of a key.
func ask(ctx context.Context, from *client, o options, text string, out io.Writer) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	found, err := from.keysOf(ctx, o.controller, key)
	if err != nil {
		return err
	}
	for _, k := range found {
		writeKey(out, k, len(found) > 1)
	}
	return nil
}

// watch writes the sentence about a key each time that it changes, until ctx ends.
func watch(ctx context.Context, from *client, o options, text string, out io.Writer) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	last := make(map[string]string)
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for {
		found, err := from.keysOf(ctx, o.controller, key)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, k := range found {
			// The sentence has durations, so the state of affairs is compared without it.
			if now := stateOfAffairs(k); last[k.Controller] != now {
				last[k.Controller] = now
				fmt.Fprintf(out, "%s  %s: %s\n", k.At.Local().Format("15:04:05"), k.Controller, plain(k.Why))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// top writes the controllers, and the keys that need attention.
func top(ctx context.Context, from *client, out io.Writer) error {
	var m status.Manager
	if err := from.get(ctx, "index", nil, &m); err != nil {
		return err
	}
	writeManager(out, m)
	for _, c := range m.Controllers {
		list, err := from.urgent(ctx, c.Name)
		if err != nil {
			return err
		}
		writeKeys(out, m.At, c.Name, list)
	}
	return nil
}

// serve shows a bundle to a browser until ctx ends.
func serve(ctx context.Context, address, file string, out, errOut io.Writer) error {
	b, err := readBundle(file, errOut)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: b.Handler(), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(out, "http://%s/ shows the bundle of %s; Ctrl-C ends.\n", listener.Addr(),
		b.Created.Local().Format(time.DateTime))
	err = server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// readBundle reads a bundle. Of one that is damaged it returns what can be read, and warns of that.
func readBundle(file string, errOut io.Writer) (*inspect.Bundle, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := inspect.ReadBundle(f)
	switch {
	case b == nil:
		return nil, fmt.Errorf("%s: %s", file, plain(err.Error()))
	case err != nil:
		fmt.Fprintf(errOut, "why: %s is damaged, so a part is missing or wrong: %s\n", file, plain(err.Error()))
	}
	return b, nil
}
