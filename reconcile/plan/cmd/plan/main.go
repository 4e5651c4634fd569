// Command plan says what a controller would change in a cluster. It runs the program on a fork of the cluster, which
// only reads: package reconcile/plan says what the fork does, and what it does not.
//
//	plan -context prod -- ./new-operator --its --flags
//	plan -context prod -o markdown -- ./new-operator > plan.md
//	plan -context prod -o html -- ./new-operator > plan.html
//	plan diff now.json next.json  what the second of two reports has that the first has not, and what both have
//	plan rights                   the ClusterRole that is enough for any plan; with -admission also that for dry runs
//
// A program of the name diff or rights needs -- before it.
//
// The program is led to the fork by KUBECONFIG, and by ~/.kube/config of a home folder of its own. The variables by
// which a program in a pod finds the cluster are taken from it. A program that wants an argument gets the path of the
// kubeconfig in place of {kubeconfig}; any other value of -kubeconfig or -master is refused. What the program prints
// goes to standard error.
//
// With -isolated, on Linux, the program runs in a network of its own, in which only the fork answers, and finds what a
// program in a pod finds: the files of its service account, and the variables that name the API server. Without it the
// report names what the program was connected to.
//
// The exit status is 0 if the program would change nothing, 2 if it would, and 1 for an error, or if there are no
// changes but the report cannot say that there would be none: the program had not settled, say, or could not read
// something.
//
// main.go is all of it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile/plan"
)

const usage = `plan says what a controller would change in a cluster.

	plan [flags] -- PROGRAM [ARGUMENTS]    runs the program on a fork of the cluster
	plan [flags] diff FILE FILE            what the second of two reports (-o json) has that the first has not
	plan [-admission] rights               prints the ClusterRoles that are enough for any plan

A program of the name diff or rights needs -- before it.

The exit status is 0 for no changes, 2 for changes, and 1 for an error. Flags:
`

const (
	nothing = 0
	failed  = 1
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// options are the flags.
type options struct {
	kubeconfig, context, format, account string

	healthy, admission bool
	isolated           bool

	quiet, timeout time.Duration
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (code int, err error) {
	var o options
	flags := flag.NewFlagSet("plan", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() {
		fmt.Fprint(errOut, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that names the cluster; empty: as for kubectl")
	flags.StringVar(&o.context, "context", "", "`name` of the context in that file; empty: the current one")
	flags.StringVar(&o.account, "account", "", "`NAMESPACE/NAME` of the service account whose rights the program has; "+
		"empty: it may do everything on the fork")
	flags.StringVar(&o.format, "o", "text", "`format` of the report: text, markdown, html or json; text is "+
		"in colours on a terminal, unless NO_COLOR is set")
	flags.BoolVar(&o.healthy, "healthy", false, "what the program writes counts as carried out: Deployments are "+
		"rolled out, Jobs have succeeded; otherwise the world stands still")
	flags.BoolVar(&o.isolated, "isolated", false, "the program runs in a network of its own, where only the fork "+
		"answers, and finds the files that a program in a pod finds; Linux only")
	flags.BoolVar(&o.admission, "admission", false, "send each write to the cluster as a dry run, too: its webhooks, "+
		"policies and quotas are asked; needs the rights to write")
	flags.DurationVar(&o.quiet, "quiet", 10*time.Second, "how long the program has to do nothing new to be done")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long the program runs at most")
	command, err := parse(flags, args)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nothing, err
		}
		return failed, err
	}
	if err := (&plan.Report{}).Write(io.Discard, o.format); err != nil {
		return failed, err // before the program runs
	}
	var report *plan.Report
	switch command {
	case "rights":
		_, err := io.WriteString(out, rights(o))
		return nothing, err
	case "diff":
		report, err = compared(flags.Arg(0), flags.Arg(1))
	default:
		report, err = runProgram(ctx, o, flags.Args(), errOut)
	}
	if report == nil {
		return failed, err
	}
	if err := errors.Join(err, report.Write(out, o.format)); err != nil {
		return failed, err
	}
	switch code = report.ExitStatus(); {
	case ctx.Err() != nil:
		return failed, errors.New("plan: interrupted")
	case code == failed:
		return failed, fmt.Errorf("plan: no changes, but %s", cmp.Or(report.Doubt(),
			"of the other report: "+report.OtherDoubt))
	}
	return code, nil
}

// parse reads the arguments, and returns diff, rights, or nothing if a program is to run. The flags of these two may
// stand before and after their names.
func parse(flags *flag.FlagSet, args []string) (command string, err error) {
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return "", errors.New("plan: name the program, after --")
	}
	files := map[string]int{"diff": 2, "rights": 0}
	command = flags.Arg(0)
	wanted, ok := files[command]
	if before := len(args) - flags.NArg(); !ok || before > 0 && args[before-1] == "--" {
		return "", nil
	}
	if err := flags.Parse(flags.Args()[1:]); err != nil {
		return "", err
	}
	if flags.NArg() != wanted {
		return "", fmt.Errorf("plan: %s takes %d files, and not %d, after its flags; for a program of this name: "+
			"plan [flags] -- %s", command, wanted, flags.NArg(), command)
	}
	return command, nil
}

// rights are the roles that plans with these options need.
func rights(o options) string {
	if o.admission {
		return plan.ReadRole + "---\n" + plan.AdmitRole
	}
	return plan.ReadRole
}

// compared returns what a report has that another one has not.
func compared(before, after string) (*plan.Report, error) {
	var reports [2]plan.Report
	for i, name := range []string{before, after} {
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &reports[i])
		}
		if err != nil {
			return nil, fmt.Errorf("plan: the report %s: %w", name, err)
		}
	}
	return reports[1].Without(&reports[0])
}

// withoutUser is the address of a cluster without the name of a user, which may be a token, and without a password.
func withoutUser(host string) string {
	u, err := url.Parse(host)
	if err != nil || u.User == nil {
		return host[strings.LastIndexByte(host, '@')+1:]
	}
	u.User = nil
	return u.String()
}

// runProgram runs a program on a fork of the cluster of the options.
func runProgram(ctx context.Context, o options, command []string, errOut io.Writer) (*plan.Report, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.context})
	cfg, err := loading.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("plan: no configuration of a cluster: %w", err)
	}
	named := o.context
	if raw, err := loading.RawConfig(); err == nil && named == "" {
		named = raw.CurrentContext // none in a pod
	}
	fmt.Fprintf(errOut, "plan: %s runs on a fork of %s, until it has done nothing new for %v\n", command[0],
		withoutUser(cfg.Host), o.quiet)
	opts := plan.RunOptions{Quiet: o.quiet, Timeout: o.timeout, Options: plan.Options{Context: named,
		Account: o.account, Admission: o.admission}}
	if o.healthy {
		opts.World = plan.Healthy
	}
	return plan.RunCommand(ctx, cfg, plan.Command{Args: command, Output: errOut, Isolated: o.isolated},
		opts)
}
