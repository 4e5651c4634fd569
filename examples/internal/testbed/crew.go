package testbed

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Crew is two replicas of each of some commands. The two fight for their Lease.
type Crew struct {
	t       *testing.T
	cluster *cluster.Cluster
	mu      sync.Mutex
	members map[string]*cluster.Process // guarded by mu; "deployment-one"
	revived int                         // guarded by mu
}

// Member is a command of a crew: its name, its program and flags of its own.
type Member struct {
	Name, Path string
	Flags      []string
}

// NewCrew starts the commands, which end with the test. A test's own binary is a Path, too, if its TestMain runs the
// command when BE_THE_COMMAND is set.
func NewCrew(t *testing.T, c *cluster.Cluster, kubeconfig string, members ...Member) *Crew {
	crew := &Crew{t: t, cluster: c, members: map[string]*cluster.Process{}}
	for _, m := range members {
		for _, replica := range []string{"one", "two"} {
			p, err := c.Run(t.Context(), cluster.Command{Name: m.Name + "-" + replica, Path: m.Path,
				Env: []string{"BE_THE_COMMAND=1"}, Args: append([]string{"--kubeconfig=" + kubeconfig,
					"--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect-identity=" + replica,
					"--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=4s",
					"--leader-elect-retry-period=1s"}, m.Flags...)})
			require.NoError(t, err)
			crew.members[m.Name+"-"+replica] = p
		}
	}
	t.Cleanup(func() { // before the gateway closes, which waits for its clients
		for name, p := range crew.members {
			if log, err := os.ReadFile(p.Log); t.Failed() && err == nil {
				t.Logf("the end of what %s has said:\n%s", name, log[max(0, len(log)-3000):])
			}
			_ = p.Kill(context.Background()) // it may have ended
		}
	})
	return crew
}

// Build builds another example, and returns the path of its program.
func Build(t *testing.T, example string) string {
	path := filepath.Join(t.TempDir(), example)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../"+example).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// Leader returns the replica of a command that holds the lease, or any.
func (c *Crew) Leader(command string) *cluster.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	lease, err := c.cluster.Client().CoordinationV1().Leases("kube-system").Get(c.t.Context(), "thermostat-"+command,
		metav1.GetOptions{})
	if err == nil && lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, "two_") {
		return c.members[command+"-two"]
	}
	return c.members[command+"-one"]
}

// Revive starts again what has ended, as a kubelet does. It may have been killed, or have given up with an error.
func (c *Crew) Revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.members {
		select {
		case <-p.Ended():
			status, err := p.Wait(c.t.Context())
			if status != "signal: killed" && status != "exit status 1" {
				c.t.Errorf("%s ended: %s (%v)", name, status, err)
			}
			again, err := p.Restart(c.t.Context())
			if err != nil {
				c.t.Errorf("restart %s: %v", name, err)
				return
			}
			c.members[name], c.revived = again, c.revived+1
		default:
		}
	}
}

// Revived returns how often a process was started again.
func (c *Crew) Revived() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revived
}

// Fault is something that goes wrong with machines.
type Fault struct {
	Name string
	Do   func() error
}

// Killed, Frozen and Away are faults: the leader of a command is killed; it is frozen until another leads; the API
// server is killed, and comes back after 2 s.
func (c *Crew) Killed(command string) Fault {
	return Fault{"leader of " + command + " killed", func() error {
		_ = c.Leader(command).Kill(c.t.Context()) // it may have ended just now
		return nil
	}}
}

func (c *Crew) Frozen(command string) Fault {
	return Fault{"leader of " + command + " frozen until another leads", func() error {
		leader := c.Leader(command)
		if leader.Stop(c.t.Context()) != nil {
			return nil // it has ended just now
		}
		time.Sleep(10 * time.Second)
		return leader.Continue(c.t.Context())
	}}
}

func (c *Crew) Away() Fault {
	return Fault{"API server killed and away for 2 s", func() error {
		if err := c.cluster.Kill(c.t.Context(), cluster.APIServer); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		return c.cluster.Restart(c.t.Context(), cluster.APIServer)
	}}
}

// Seed returns the seed of a random test: THERMOSTAT_SEED, or a new one, which the log has.
func Seed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("THERMOSTAT_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("THERMOSTAT_SEED=%d", seed)
	return seed
}

// Suffer lets faults happen one after another in random order, a few seconds apart, until ctx ends, and returns how
// often each was. What has ended is revived.
func (c *Crew) Suffer(ctx context.Context, random *rand.Rand, faults ...Fault) map[string]int {
	happened := map[string]int{}
	for {
		for _, i := range random.Perm(len(faults)) {
			select {
			case <-ctx.Done():
				return happened
			case <-time.After(time.Duration(1+random.IntN(4)) * time.Second):
			}
			c.t.Logf("%s: %s", time.Now().Format("15:04:05.000"), faults[i].Name)
			if err := faults[i].Do(); err != nil && ctx.Err() == nil {
				c.t.Errorf("%s: %v", faults[i].Name, err)
			}
			happened[faults[i].Name]++
			c.Revive()
		}
	}
}
