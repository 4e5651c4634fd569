package reconciletest_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/network"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// together is a scenario for two programs that write the same ConfigMap.
func together(one, other reconciletest.Program) reconciletest.Scenario {
	return reconciletest.Scenario{
		Programs: []reconciletest.Program{one, other},
		Server:   reconciletest.Options{CRDs: []string{"testdata/config/crd.yaml"}},
		Steps:    reconciletest.ApplyYAML(greeting("hello"), greeting("goodbye")),
		Budget:   200 * time.Millisecond,
	}
}

// applies is a program that applies one key of the ConfigMap, as what it is called.
func applies(name, key string, value func(text string) string) reconciletest.Program {
	return reconciletest.Program{Name: name, Run: plain(func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		data := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{%q:%q}}`, key,
			value(text))
		force := true
		_, err := c.core.CoreV1().ConfigMaps("default").Patch(ctx, "a", types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: name, Force: &force})
		return err
	})}
}

func plainText(text string) string { return text }
func length(text string) string    { return fmt.Sprint(len(text)) }

// overwrites is a program that reads the ConfigMap, sets a key, and writes the whole: only if nothing was written
// meanwhile if it is safe.
func overwrites(name, key string, safe bool, value func(text string) string) reconciletest.Program {
	return reconciletest.Program{Name: name, Run: plain(func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		if !safe {
			time.Sleep(time.Second) // when nothing goes wrong, the other is done: what is undone then is no finding
		}
		configs := c.core.CoreV1().ConfigMaps("default")
		m, err := configs.Get(ctx, "a", metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && m.Data[key] == value(text) {
			return nil // the other program makes it
		} else if err != nil {
			return err
		}
		if m.Data[key] = value(text); !safe {
			m.ResourceVersion = ""
		}
		_, err = configs.Update(ctx, m, metav1.UpdateOptions{})
		return err
	})}
}

func TestCheckFindsNothingInTwoProgramsThatShareAnObject(t *testing.T) {
	reconciletest.Check(t, together(applies("writer", "text", plainText), applies("counter", "length", length)))
	reconciletest.Check(t, together(applies("writer", "text", plainText),
		overwrites("counter", "length", true, length)))
}

// careful changes the data of the ConfigMap, if nothing was written meanwhile.
func careful(name string, change func(text string, data map[string]string)) reconciletest.Program {
	return reconciletest.Program{Name: name, Run: plain(func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		if err := makeMap(ctx, c, g, "a"); err != nil {
			return err
		}
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		after := maps.Clone(m.Data)
		if after == nil {
			after = map[string]string{}
		}
		if change(text, after); maps.Equal(m.Data, after) {
			return nil
		}
		m.Data = after
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return err
	})}
}

// TestCheckFindsNothingInProgramsThatAskAndAnswer by a field that one of them sets and the other removes.
func TestCheckFindsNothingInProgramsThatAskAndAnswer(t *testing.T) {
	reconciletest.Check(t, together(careful("asks", func(text string, data map[string]string) {
		if data["done"] != text {
			data["please"] = text
		}
	}), careful("answers", func(_ string, data map[string]string) {
		if please := data["please"]; please != "" {
			data["done"] = please
			delete(data, "please")
		}
	})))
}

// TestCheckFindsNothingInAProgramThatServesAWebhookBesideAnother is about a user whose step needs the one, while the
// other is up.
func TestCheckFindsNothingInAProgramThatServesAWebhookBesideAnother(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	certified.Close()
	manifest := filepath.Join(t.TempDir(), "webhook.yaml")
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
	require.NoError(t, os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: judge}
webhooks:
- name: judge.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://example.com:9443/judge", caBundle: %q}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: [greetings], operations: [CREATE, UPDATE]}]
`, base64.StdEncoding.EncodeToString(bundle)), 0o600))
	var calls atomic.Int64
	judge := func(ctx context.Context, _ *rest.Config) error {
		l, err := network.Listen(ctx, ":9443")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: allow(&calls), ReadHeaderTimeout: time.Minute}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		config := &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}
		if err := server.Serve(tls.NewListener(l, config)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	sc := together(reconciletest.Program{Name: "judge", Run: judge}, applies("writer", "text", plainText))
	sc.Server.Manifests = []string{manifest}
	require.Empty(t, reconciletest.Singles(t, sc))
	require.Positive(t, calls.Load())
}

// TestTwoProgramsThatFight names both, and the field.
func TestTwoProgramsThatFight(t *testing.T) {
	found := reconciletest.Search(t, together(applies("lower", "text", strings.ToLower),
		applies("upper", "text", strings.ToUpper)))
	require.Len(t, found, 1)
	require.Equal(t, "comes to rest", found[0].Rule)
	detail := strings.Join(found[0].Detail, "\n")
	require.Contains(t, detail, "lower: patch configmaps default/a")
	require.Contains(t, detail, "upper: patch configmaps default/a")
	require.Regexp(t, `\.data\.text of configmaps default/a is changed in turn, \d+ times by now`, detail)
	require.Contains(t, strings.Join(found[0].Timeline, "\n"), "upper 1: patch configmaps default/a: 200")
}

// TestAProgramThatWipesAFieldOfAnother has written it back with an object that it has read before.
func TestAProgramThatWipesAFieldOfAnother(t *testing.T) {
	sc := together(applies("writer", "text", plainText), overwrites("counter", "length", false, length))
	found := reconciletest.Search(t, sc)
	require.NotEmpty(t, found)
	var wiped *reconciletest.Finding
	for _, f := range found {
		if f.Rule == "leaves alone what belongs to others" && strings.Contains(f.Detail[0], "has undone") {
			wiped = f
		}
	}
	require.NotNil(t, wiped, "%v", found)
	require.Regexp(t, `counter: update configmaps default/a has undone at .* what writer did at .*: \.data\.text`,
		wiped.Detail[0])

	sc.Replay = wiped.Replay
	again := reconciletest.Search(t, sc)
	require.Len(t, again, 1)
	require.Equal(t, wiped.Rule, again[0].Rule)
}

// TestEachDisturbanceHitsEachProgram is about what the timeline of a run with it says.
func TestEachDisturbanceHitsEachProgram(t *testing.T) {
	sc := together(applies("writer", "text", plainText), applies("counter", "length", length))
	sc.World = &reconciletest.World{}
	const second = `(?s)step 2: apply Greeting a.*`
	for disturbance, says := range map[string]string{ // before all are restarted in the end, the writer first
		"writer: crash after patch configmaps #1": ` 30\.\d+s  CRASH of writer 1\n +30\.\d+s  start of writer 2\n`,
		"counter: crash after patch configmaps #1": ` 30\.\d+s  CRASH of counter 1\n +30\.\d+s  start of ` +
			`counter 2\n`,
		"counter: down in step 2": `CRASH of counter 1\n +\d+\.\d+s  ` + second + `start of counter 2\n`,
		"writer: cold start":      second + `start of writer 1\n.*writer 1: patch`,
		"writer: second at patch configmaps #1": `(?s) 30\.\d+s  start of writer 2\n.* 35\.\d+s  ` +
			`CRASH of writer 1\n`,
		"counter: old cache after step 2": second + `counter: old cache after step 2\n +\d+\.\d+s  CRASH of ` +
			`counter 1\n +\d+\.\d+s  start of counter 2\n.*the cache of the server is up to date again`,
		"down in step 2": `CRASH of writer 1\n[^\n]*CRASH of counter 1\n +\d+\.\d+s  step 2: `,
	} {
		story := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=2: "+disturbance), "\n") + "\n"
		for _, program := range []string{"writer", "counter"} {
			if strings.HasPrefix(disturbance, program) { // the restart in the end is one of the other, too
				other := map[string]string{"writer": "counter", "counter": "writer"}[program]
				story, _, _ = strings.Cut(story, "CRASH of "+other)
			}
		}
		require.Regexp(t, says, story, disturbance)
	}
	held := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=2: counter: held at patch configmaps #1"), "\n")
	require.Regexp(t, `30\.\d+s  counter: held at patch configmaps #1
 +30\.\d+s  writer 1: patch configmaps default/a: 201, a made
 +35\.\d+s  counter 1: patch configmaps default/a: 200`, held, "the other goes on")
}

func TestProgramsAreExplored(t *testing.T) {
	sc := together(applies("writer", "text", plainText), applies("counter", "length", length))
	sc.Steps = sc.Steps[:1]
	sc.Explore = reconciletest.Exhaustive{Crashes: 1}
	report, found := reconciletest.Explored(t, sc)
	require.Empty(t, found)
	require.Contains(t, report, "Exhaustive{Crashes: 1} is done")
	require.Contains(t, report, "writer: patch configmaps")
	require.Contains(t, report, "counter: patch configmaps")
	require.Contains(t, report, "counter: the smallest roles")
}

func TestWhatIsWrongWithPrograms(t *testing.T) {
	off := together(applies("writer", "text", plainText), applies("counter", "length", length))
	off.Replay = "v1 seed=0 steps=1: "
	off.Off = []string{"counter: crash after patch configmaps", "writer: cold start"}
	require.NoError(t, reconciletest.Validate(off))
	off.Off = []string{"reader: cold start"}
	require.ErrorContains(t, reconciletest.Validate(off), "neither a rule nor a disturbance")
	good := together(applies("writer", "text", plainText), applies("counter", "length", length))
	for text, change := range map[string]func(*reconciletest.Scenario){
		"Scenario.Run or Scenario.User as well": func(sc *reconciletest.Scenario) { sc.Run = sc.Programs[0].Run },
		"and so is that of another one":         func(sc *reconciletest.Scenario) { sc.Programs[1].Name = "writer" },
		`Scenario.Programs[0].Name is "a: b"`:   func(sc *reconciletest.Scenario) { sc.Programs[0].Name = "a: b" },
		"Scenario.Programs[1].Run is nil":       func(sc *reconciletest.Scenario) { sc.Programs[1].Run = nil },
		"Scenario.Programs[0].User is \"me\"":   func(sc *reconciletest.Scenario) { sc.Programs[0].User = "me" },
		"there is no program reader":            func(sc *reconciletest.Scenario) { sc.Replay = "reader: slow" },
		"it is one of several programs":         func(sc *reconciletest.Scenario) { sc.Replay = "500 to list pods #1" },
		"is not about a program": func(sc *reconciletest.Scenario) {
			sc.Replay = "writer: delete pods in step 1"
		},
	} {
		sc := good
		sc.Programs = append([]reconciletest.Program(nil), good.Programs...)
		if change(&sc); sc.Replay != "" {
			sc.Replay = "v1 seed=0 steps=1: " + sc.Replay
		}
		require.ErrorContains(t, reconciletest.Validate(sc), text)
	}
	alone := greets(plain(right))
	alone.Replay = "v1 seed=0 steps=1: writer: slow"
	require.ErrorContains(t, reconciletest.Validate(alone), "there is no program writer")
	require.NoError(t, errors.Join(reconciletest.Validate(func() reconciletest.Scenario {
		sc := good
		sc.Replay = "v1 seed=0 steps=1: writer: slow; counter: held at patch configmaps #1; cold start"
		return sc
	}())))
}

// TestSeveralProgramsAreDeterministic is about two that share ConfigMaps, of which one keeps something outside.
func TestSeveralProgramsAreDeterministic(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(processors)
	sc := greets(nil)
	sc.Programs = []reconciletest.Program{{Name: "greeter", Run: runGreeter}, {Name: "buckets", Run: runBuckets}}
	sc.User, sc.Server.Roles = "", nil
	sc.Outside = clouded(nil).Outside
	for _, schedule := range []string{
		"v1 seed=0 steps=3: ",
		"v1 seed=3 steps=3: greeter: crash after create configmaps #1; buckets: no answer to PUT cloud.example.com #1",
		"v1 seed=0 steps=3: buckets: held at patch configmaps #1; greeter: second at update configmaps #1",
	} {
		var first string
		for _, n := range []int{1, 2, 4} {
			runtime.GOMAXPROCS(n)
			for _, trace := range reconciletest.Traces(t, sc, schedule, 10) {
				first = cmp.Or(first, trace)
				require.Equal(t, first, trace)
			}
		}
		require.Contains(t, first, "buckets 1: PUT https://cloud.example.com/buckets/")
		require.Contains(t, first, "greeter 1: create configmaps default/: 201, a made")
	}
}

// TestWhatIsBesideGoesOn between the steps while the program is down.
func TestWhatIsBesideGoesOn(t *testing.T) {
	s := greets(plain(right))
	s.Beside = append(s.Beside, func(ctx context.Context, cfg *rest.Config) error {
		c := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "beside"}}
		lifecycle.Sleep(ctx, 10*time.Second)
		if _, err := c.Create(ctx, m, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	needs := func(ctx context.Context, cfg *rest.Config) error {
		c := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		_, err := c.Get(ctx, "beside", metav1.GetOptions{})
		return err
	}
	s.Steps = append(s.Steps[:1], reconciletest.StepFunc("needs it", needs))
	s.Replay = "v1 seed=0 steps=2: cold start"
	require.Empty(t, reconciletest.Search(t, s))
}
