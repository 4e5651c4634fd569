package story

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Process is a running program.
type Process interface {
	Ended() <-chan struct{}
	Kill(context.Context) error
	Terminate(context.Context) error
	Wait(context.Context) (status string, err error)
}

// Replicas are two processes of each controller: a, which is the first to lead, and b.
type Replicas struct {
	Narrator    *Narrator
	Controllers []string            // such as replicaset: the program in examples
	Flags       map[string][]string // of a controller, beside those that all have
	Programs    string              // the directory of the programs
	Kubeconfig  string
	Logs        string // the directory with the log NAME.log of each process
	Run         func(ctx context.Context, name, path string, args []string) (Process, error)

	processes map[string]Process // by name, such as replicaset-a
	pages     map[string]string  // the host:port of each process, by its name
}

// The lease is shorter than by default (15 s, 10 s, 2 s), so that the standby takes over sooner.
const leaseDuration, renewDeadline, retryPeriod = 8 * time.Second, 4 * time.Second, time.Second

const leaseNamespace = "kube-system"

// Controllers are ours, and Flags what they need for the demo.
var (
	Controllers = []string{"autoscaler", "deployment", "replicaset"}
	Flags       = map[string][]string{"autoscaler": {"--horizontal-pod-autoscaler-sync-period", LookPeriod.String()}}
)

// Leases are those of the controllers.
func (r *Replicas) Leases() (leases []types.NamespacedName) {
	for _, name := range r.Controllers {
		leases = append(leases, types.NamespacedName{Namespace: leaseNamespace, Name: "thermostat-" + name})
	}
	return leases
}

// Start starts the replicas a, waits until they lead, and starts the replicas b.
func (r *Replicas) Start(ctx context.Context, client *Client) (string, error) {
	began := time.Now()
	r.processes, r.pages = map[string]Process{}, map[string]string{}
	if err := r.start(ctx, "a"); err != nil {
		return "", err
	}
	r.Narrator.Count(fmt.Sprintf("waiting for the lease: a new one is not acquired before %v, in case an "+
		"earlier leader still works", leaseDuration))
	leaders, err := AwaitLeaders(ctx, client, r, nil)
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	if err := r.start(ctx, "b"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s after %s; another replica stands by.", strings.Join(names(leaders), " and "),
		leadOrLeads(len(leaders)), Seconds(took)), nil
}

// names returns the names of the processes that hold leases: each adds a UID to its name.
func names(holders []string) (names []string) {
	for _, holder := range holders {
		name, _, _ := strings.Cut(holder, "_")
		names = append(names, name)
	}
	return names
}

func leadOrLeads(n int) string {
	if n == 1 {
		return "leads"
	}
	return "lead"
}

func (r *Replicas) start(ctx context.Context, letter string) error {
	for _, controller := range r.Controllers {
		name := controller + "-" + letter
		page, err := freeAddress()
		if err != nil {
			return err
		}
		r.pages[name] = page
		process, err := r.Run(ctx, name, filepath.Join(r.Programs, controller), append([]string{
			"--kubeconfig", r.Kubeconfig, "--leader-elect-resource-namespace", leaseNamespace,
			"--leader-elect-identity", name, "--leader-elect-lease-duration", leaseDuration.String(),
			"--leader-elect-renew-deadline", renewDeadline.String(),
			"--leader-elect-retry-period", retryPeriod.String(), "--metrics-bind-address", page, "-v", "1",
		}, r.Flags[controller]...))
		if err != nil {
			return err
		}
		r.processes[name] = process
	}
	return nil
}

// freeAddress returns a port of the loopback address that nothing listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// Pages is where the pages of the processes are, a line for each.
func (r *Replicas) Pages() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.pages)) {
		lines = append(lines, fmt.Sprintf("  http://%s/inspect/   %s", r.pages[name], name))
	}
	return strings.Join(lines, "\n")
}

// Running returns an error if a controller has ended by itself.
func (r *Replicas) Running(context.Context) error {
	for name, process := range r.processes {
		select {
		case <-process.Ended():
			return fmt.Errorf("%s has ended by itself", name)
		default:
		}
	}
	return nil
}

// EndLeaders kills the processes that lead.
func (r *Replicas) EndLeaders(ctx context.Context, holders []string) (string, time.Duration, error) {
	leaders := names(holders)
	for _, name := range leaders {
		leader := r.processes[name]
		if leader == nil {
			return "", 0, fmt.Errorf("%s leads, and is not one of %v", name, slices.Sorted(maps.Keys(r.processes)))
		}
		if err := leader.Kill(ctx); err != nil {
			return "", 0, err
		}
		delete(r.processes, name)
	}
	return fmt.Sprintf("kill -9 %s: their leases expire within %v", strings.Join(leaders, " "), leaseDuration),
		leaseDuration + 2*retryPeriod, nil
}

// End tells the remaining processes to end.
func (r *Replicas) End(ctx context.Context) (string, error) {
	began := time.Now()
	names := slices.Sorted(maps.Keys(r.processes))
	for _, name := range names {
		if err := r.processes[name].Terminate(ctx); err != nil {
			return "", err
		}
	}
	for _, name := range names {
		status, err := r.processes[name].Wait(ctx)
		if err != nil {
			return "", err
		}
		if !strings.Contains(status, "exit status 0") {
			return "", fmt.Errorf("%s was told to end and did so with %s", name, status)
		}
		delete(r.processes, name)
	}
	return fmt.Sprintf("%s ended cleanly within %s of a SIGTERM", strings.Join(names, " and "),
		Seconds(time.Since(began))), nil
}

// ShowLogs prints the end of the controllers' logs, whose files are deleted at the end.
func (r *Replicas) ShowLogs() {
	for _, controller := range r.Controllers {
		for _, name := range []string{controller + "-a", controller + "-b"} {
			content, err := os.ReadFile(filepath.Join(r.Logs, name+".log"))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(content)), "\n")
			r.Narrator.Text("The end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	}
}
