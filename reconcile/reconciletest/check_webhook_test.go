package reconciletest_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// allow is a webhook that allows everything, and counts.
func allow(calls *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		calls.Add(1)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}
}

// greetsBehindAWebhook has the ConfigMaps of the greeter judged.
func greetsBehindAWebhook(calls *atomic.Int64) reconciletest.Scenario {
	sc := greets(plainAt("0", right))
	sc.Server.Manifests = []string{"testdata/webhooks.yaml"}
	sc.Server.Webhooks = map[string]http.Handler{"judge.judges.svc": allow(calls)}
	return sc
}

// TestWhatDisturbancesOfWebhooksDo lets the write of a program fail, and what it tries again in the next 20 s. A user's
// steps go on.
func TestWhatDisturbancesOfWebhooksDo(t *testing.T) {
	for disturbance, begin := range map[string]string{
		"webhook down at update configmaps #1":              "update configmaps default/a: 500",
		"webhook slow at update configmaps #1":              "update configmaps default/a: 500",
		"webhook certificate ended at create configmaps #1": "create configmaps default/: 500",
		"webhook wrong at update configmaps #1":             "update configmaps default/a: 500",
	} {
		var calls atomic.Int64
		sc := greetsBehindAWebhook(&calls)
		story := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=3: "+disturbance), "\n")
		require.Contains(t, story, disturbance)
		require.GreaterOrEqual(t, strings.Count(story, begin), 2, "%s:\n%s", disturbance, story)
		require.Contains(t, story, "create configmaps default/: 201")
	}
}

// TestCheckNamesAWebhookThatNothingServes in place of what the program could not write, or the user.
func TestCheckNamesAWebhookThatNothingServes(t *testing.T) {
	const want = "nothing serves the webhook judge.example.com at judge.judges.svc:443, and the server had to call " +
		"it; what serves it is a handler in Scenario.Server.Webhooks, "
	for name, change := range map[string]func(*reconciletest.Scenario){
		"that does not converge": func(*reconciletest.Scenario) {},
		"that ends alike":        func(sc *reconciletest.Scenario) { sc.Settled = nil },
		"that the user meets": func(sc *reconciletest.Scenario) {
			sc.Steps = reconciletest.ApplyYAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			sc := greets(plainAt("0", right))
			sc.Server.Manifests = []string{"testdata/webhooks.yaml"}
			change(&sc)
			found := reconciletest.Search(t, sc)
			require.Len(t, found, 1)
			require.Equal(t, "has its webhooks served", found[0].Rule)
			require.Contains(t, found[0].Detail[0], want)
		})
	}
}

// A program that lacks rights may serve no webhook for that reason.
func TestCheckNamesMissingRightsBeforeWebhooks(t *testing.T) {
	roles, err := os.ReadFile("testdata/config/rbac.yaml")
	require.NoError(t, err)
	less := filepath.Join(t.TempDir(), "rbac.yaml")
	require.Contains(t, string(roles), "create, ")
	require.NoError(t, os.WriteFile(less, []byte(strings.ReplaceAll(string(roles), "create, ", "")), 0o600))
	sc := greets(plainAt("0", right))
	sc.Server.Manifests, sc.Server.Roles = []string{"testdata/webhooks.yaml"}, []string{less}
	sc.Steps = append(sc.Steps,
		reconciletest.ApplyYAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}")...)
	found := reconciletest.Search(t, sc)
	require.NotEmpty(t, found)
	require.Equal(t, "has the rights that it needs", found[0].Rule)
}

// TestCheckDisturbsWebhooks by their names, which switch them off, at the requests that call one and at no others.
func TestCheckDisturbsWebhooks(t *testing.T) {
	var calls atomic.Int64
	sc := greetsBehindAWebhook(&calls)
	sc.Off = []string{"webhook slow", "webhook wrong create configmaps"}
	report := reconciletest.Report(t, sc)
	require.Regexp(t, `at writes: .*webhook down 3, webhook certificate ended 3, webhook wrong 2`, report)
	require.NotContains(t, report, "webhook slow 3")
	require.NotRegexp(t, `at reads: .*webhook`, report)
	require.NotContains(t, reconciletest.Report(t, greets(plainAt("0", right))), "webhook")
}
