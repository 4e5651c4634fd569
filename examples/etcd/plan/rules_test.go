package plan

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// safety has the rules that keep a database, each as the text that says it and what stands there without it.
var safety = []struct{ rule, file, text, without string }{
	{"no action costs the quorum", "quorum.go", "if healthy >= Quorum(voters) {", "if true {"},
	{"without a quorum nothing is changed", "next.go", "	unlisted,      // no quorum: everything below needs one\n",
		""},
	{"a voter never starts on an empty disk", "next.go",
		"	withdraw,      // permissions to start on an empty disk\n", ""},
	{"one cluster is formed once", "next.go", "	if c.Formed {\n", "	if c.Formed && c.Listed {\n"},
	{"only a healthy learner votes", "size.go", "case !m.Healthy:", "case false:"},
	{"a pod is not made beside an old one that is going", "next.go", "	if m.Pod == Leaving {\n", "	if false {\n"},
	{"who others are connected to is not replaced", "cluster.go", "m.Down >= c.ReplaceAfter && !m.Alive",
		"m.Down >= c.ReplaceAfter"},
	{"a member that does not start with a new version gets its old one", "next.go",
		"	rollBack,      // a version that a member does not start with\n", ""},
	{"disks are prepared before an older version runs", "version.go",
		"	if a := c.downgrade(oldest, newest); a != nil {\n", "	if a := c.downgrade(oldest, newest); false {\n"},
	{"a downgrade goes back one minor version", "version.go", "case c.Version.Minor < newest.Minor-1:", "case false:"},
	{"versions change while all members are healthy", "version.go", "case c.find(needs) != nil:", "case false:"},
	{"a pod that goes does not count, though it answers", "cluster.go", "return m.Healthy && m.Pod != Leaving",
		"return m.Healthy"},
	{"members start again for a new CA one by one", "quorum.go", "case SetImage, RollBack, RenewTrust, Compact",
		"case SetImage, RollBack, Compact"},
	{"no member joins while a downgrade is under way", "next.go",
		"	makeWay,       // downgrades, for members that join\n", ""},
}

// TestEachRuleIsNeeded takes one rule out at a time, and lets the same faults happen. A judge finds each. It does so
// for three rules, or for all with THERMOSTAT_SOAK=1.
func TestEachRuleIsNeeded(t *testing.T) {
	failed := regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	rules := safety
	if os.Getenv("THERMOSTAT_SOAK") == "" {
		rules = safety[:3]
	}
	for _, s := range rules {
		t.Run(s.rule, func(t *testing.T) {
			path, err := filepath.Abs(s.file)
			require.NoError(t, err)
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(source), s.text), "%s has the rule in one place", s.file)
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, s.file), filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(source), s.text, s.without, 1)),
				0o600))
			text, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, text, 0o600))
			test := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay,
				"-run", "TestNext|TestDecisions", ".")
			out, err := test.CombinedOutput()
			require.Error(t, err, "nobody misses it")
			by := failed.FindAllSubmatch(out, -1)
			require.NotEmpty(t, by, "%s", out)
			for _, test := range by {
				t.Logf("without %q %s fails", s.rule, test[1])
			}
		})
	}
}
