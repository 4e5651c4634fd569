package zoo

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planted are mistakes in examples/replicaset of the kind that reviewers of controllers find or overlook. They were
// chosen before any of them was tried.
var planted = []struct {
	mistake, file, right, wrong string
	unseen                      string // why Check does not find it; empty: it has to
}{
	{
		mistake: "own writes are not waited for: a pod that was made is not counted if the cache is late",
		file:    "elected_check_test.go",
		right:   "cfg.Wrap(reconcile.TrackWrites)",
		wrong:   "_ = reconcile.TrackWrites",
	}, {
		mistake: "a pod that could not be made is reported with an Event, and the failure is dropped",
		file:    "scale.go",
		right:   "		return err\n	case missing < 0:",
		wrong:   "		return nil\n	case missing < 0:",
	}, {
		mistake: "nothing wakes the controller when a pod has been ready for minReadySeconds",
		file:    "replicaset.go",
		right:   "RequeueAfter: sooner(wait, nextAvailable(mine, rs.Spec.MinReadySeconds, now, time.Now()))",
		wrong:   "RequeueAfter: wait",
	}, {
		mistake: "a pod is adopted without asking the server whether the ReplicaSet still is the one of this UID",
		file:    "replicaset.go",
		right:   "owner := objects.NewOwner(r.server.replicaSets.In(rs.Namespace), rs, kind)",
		wrong:   "owner := objects.NewOwner(cached{rs}, rs, kind)",
		unseen: "it takes an orphan, a ReplicaSet that is made anew, and a cache that is late, all at once: three " +
			"disturbances",
	}, {
		mistake: "pods that are being deleted count as replicas",
		file:    "claim.go",
		right:   "return pod.DeletionTimestamp == nil && !finished(pod)",
		wrong:   "return !finished(pod)",
		unseen:  "a pod is replaced later, and the end is the same; no rule is about how long something takes",
	}, {
		mistake: "the status is written before the pods are made and deleted, so it does not say what failed",
		file:    "replicaset.go",
		right:   "terminating(rs, selector, candidates), now), failure, now)",
		wrong:   "terminating(rs, selector, candidates), now), nil, now)",
		unseen:  "what the status says of a failure is gone in the end, and Check compares ends only",
	},
}

// cachedOwner is what the second mistake needs.
const cachedOwner = `
type cached struct{ rs *appsv1.ReplicaSet }

func (c cached) Get(context.Context, string, metav1.GetOptions) (*appsv1.ReplicaSet, error) { return c.rs, nil }
`

// TestPlanted plants each of the mistakes into a copy of the sources, and runs the Check of the example over it.
func TestPlanted(t *testing.T) {
	if !*tables {
		return
	}
	fmt.Println("| planted into examples/replicaset | found | rule | schedule |\n|---|---|---|---|")
	for _, p := range planted {
		cells := checkOverlaid(t, p.file, p.right, p.wrong)
		fmt.Printf("| %s %s\n", p.mistake, cells)
		if p.unseen == "" {
			assert.NotContains(t, cells, "| no |", p.mistake)
		}
	}
	require.Contains(t, checkOverlaid(t, "scale.go", "", ""), "| no |", "an alarm without a mistake")
}

var (
	foundText  = regexp.MustCompile(`after (\d+ runs) in .* by the rule "(.*)":`)
	replayText = regexp.MustCompile(`Replay: "v1 [^:]*: (.*)"`)
)

// checkOverlaid replaces a text in a file of the example, runs its Check, and returns the rest of a row of the table.
func checkOverlaid(t *testing.T, file, right, wrong string) string {
	example, err := filepath.Abs("../../examples/replicaset")
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(example, file))
	require.NoError(t, err)
	changed := string(source)
	if right != "" {
		require.Equal(t, 1, strings.Count(changed, right), "%s has changed: plant %q anew", file, wrong)
		changed = strings.Replace(changed, right, wrong, 1)
	}
	if strings.Contains(wrong, "cached{") {
		changed += cachedOwner
	}
	dir := t.TempDir()
	copied, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(copied, []byte(changed), 0o600))
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(example, file): copied}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, data, 0o600))

	cmd := exec.Command("go", "test", "-count=1", "-timeout", "30m", "-overlay", overlay, "-run", "TestCheckElected",
		".")
	cmd.Dir = example
	cmd.Env = append(os.Environ(), "THERMOSTAT_SOAK=1", "RECONCILETEST_BUDGET=1s")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "| no | | |"
	}
	found := foundText.FindStringSubmatch(string(out))
	require.NotNil(t, found, "%s", out)
	cells := fmt.Sprintf("| after %s | %s |", found[1], found[2])
	if replay := replayText.FindStringSubmatch(string(out)); replay != nil {
		return cells + " " + replay[1] + " |"
	}
	return cells + " |"
}
