package story

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
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

// Replicas are two processes of each controller: a, which is the first to lead, and b. Of the one for ReplicaSets there
// are three, which share the work.
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

// sharing is the controller whose replicas are all at work.
const sharing = "replicaset"

// letters are those of the replicas of a controller.
func letters(controller string) []string {
	if controller == sharing {
		return []string{"a", "b", "c"}
	}
	return []string{"a", "b"}
}

// Leases are those of the controllers.
func (r *Replicas) Leases() (leases []types.NamespacedName) {
	for _, controller := range r.Controllers {
		leases = append(leases, types.NamespacedName{Namespace: leaseNamespace, Name: "thermostat-" + controller})
	}
	return leases
}

// Start starts the replicas a, and all that share the work, waits until they lead, and starts the others.
func (r *Replicas) Start(ctx context.Context, client *Client) (string, error) {
	began := time.Now()
	r.processes, r.pages = map[string]Process{}, map[string]string{}
	standby := map[string]string{}
	for _, controller := range r.Controllers {
		for _, letter := range letters(controller) {
			if letter != "a" && controller != sharing {
				standby[controller] = letter
			} else if err := r.start(ctx, controller, letter); err != nil {
				return "", err
			}
		}
	}
	r.Narrator.Count(fmt.Sprintf("waiting for the lease: a new one is not acquired before %v, in case an "+
		"earlier leader still works", leaseDuration))
	holders, err := AwaitLeaders(ctx, client, r, func(i int, holder string) bool { // all that share, also the last
		controller := r.Controllers[i]
		return controller != sharing || len(strings.Fields(holder)) == len(letters(controller))
	})
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	for controller, letter := range standby {
		if err := r.start(ctx, controller, letter); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s after %s.", r.said(holders), Seconds(took)), nil
}

// said says who leads, and who shares the work.
func (r *Replicas) said(holders []string) string {
	var leaders, all []string
	for i, controller := range r.Controllers {
		if controller == sharing {
			all = append(all, strings.ReplaceAll(holders[i], " ", ", ")+" share the ReplicaSets")
		} else {
			leaders = append(leaders, nameOf(holders[i]))
		}
	}
	if len(leaders) > 0 {
		all = append(all, strings.Join(leaders, " and ")+" lead, with a standby each")
	}
	return strings.Join(all, "; ")
}

// nameOf returns the name of the process that holds a lease: it adds a UID to its name.
func nameOf(holder string) string {
	name, _, _ := strings.Cut(holder, "_")
	return name
}

func (r *Replicas) start(ctx context.Context, controller, letter string) error {
	name := controller + "-" + letter
	page, err := freeAddress()
	if err != nil {
		return err
	}
	r.pages[name] = page
	args := append([]string{
		"--kubeconfig", r.Kubeconfig, "--leader-elect-resource-namespace", leaseNamespace,
		"--leader-elect-identity", name, "--leader-elect-lease-duration", leaseDuration.String(),
		"--leader-elect-renew-deadline", renewDeadline.String(),
		"--leader-elect-retry-period", retryPeriod.String(), "--metrics-bind-address", page, "-v", "1",
	}, r.Flags[controller]...)
	if controller == sharing {
		args = append(args, "--shards")
	}
	process, err := r.Run(ctx, name, filepath.Join(r.Programs, controller), args)
	if err == nil {
		r.processes[name] = process
	}
	return err
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

// EndLeaders kills the processes that lead, and of those that share the work the one that has a ReplicaSet.
func (r *Replicas) EndLeaders(ctx context.Context, holders []string, replicaSet types.NamespacedName) (string,
	time.Duration, error) {
	var ended []string
	for i, controller := range r.Controllers {
		name := nameOf(holders[i])
		if controller == sharing {
			var err error
			if name, err = r.worksOn(ctx, replicaSet); err != nil {
				return "", 0, err
			}
		}
		if r.processes[name] == nil {
			return "", 0, fmt.Errorf("%q leads, and is not one of %v", name, slices.Sorted(maps.Keys(r.processes)))
		}
		ended = append(ended, name)
	}
	for _, name := range ended {
		if err := r.processes[name].Kill(ctx); err != nil {
			return "", 0, err
		}
		delete(r.processes, name)
	}
	return fmt.Sprintf("kill -9 %s: their leases expire within %v", strings.Join(ended, " "), leaseDuration),
		leaseDuration + 2*retryPeriod, nil
}

// worksOn returns which of the processes that share the work has a ReplicaSet: each of them says so on its pages.
func (r *Replicas) worksOn(ctx context.Context, replicaSet types.NamespacedName) (string, error) {
	query := url.Values{"controller": {sharing}, "namespace": {replicaSet.Namespace}, "name": {replicaSet.Name}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.pages[sharing+"-a"]+"/inspect/key.json?"+
		query.Encode(), nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var key struct{ Shard struct{ Leader string } }
	if err := json.NewDecoder(answer.Body).Decode(&key); err != nil {
		return "", fmt.Errorf("the page of %s: %s: %w", replicaSet, answer.Status, err)
	}
	return key.Shard.Leader, nil
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
		for _, letter := range letters(controller) {
			name := controller + "-" + letter
			content, err := os.ReadFile(filepath.Join(r.Logs, name+".log"))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(content)), "\n")
			r.Narrator.Text("The end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	}
}
