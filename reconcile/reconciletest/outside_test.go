package reconciletest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// clouded is a scenario for a program that gives each ConfigMap a bucket, with what it has of HTTP.
func clouded(run func(context.Context, *rest.Config) error) reconciletest.Scenario {
	return reconciletest.Scenario{
		Run: run,
		Outside: map[string]func() reconciletest.API{
			"cloud.example.com": func() reconciletest.API { return &cloud{buckets: map[string]string{}} },
		},
		Steps: append(reconciletest.ApplyYAML(
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: photos}}"),
			reconciletest.Delete("configmaps", "default", "photos")),
		Budget: 200 * time.Millisecond,
	}
}

// naive makes a bucket, and remembers it afterwards.
func naive(client func() *http.Client) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := naiveRound(ctx, core, client()); err != nil {
				select { // a process that is killed may see its connections end first
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}
		return nil
	}
}

func naiveRound(ctx context.Context, core kubernetes.Interface, client *http.Client) error {
	maps := core.CoreV1().ConfigMaps("default")
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	changes, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer changes.Stop()
	do := func(method, path string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, method, "https://cloud.example.com/buckets/"+path, nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", resp.Status)
		}
		return string(answer), err
	}
	for _, o := range list.Items {
		id := o.Annotations["example.com/bucket"]
		switch {
		case o.DeletionTimestamp == nil && id == "":
			if id, err = do(http.MethodPost, "?owner="+o.Name); err != nil {
				return err
			}
			o.Annotations, o.Finalizers = map[string]string{"example.com/bucket": id}, []string{"example.com/bucket"}
		case o.DeletionTimestamp != nil && len(o.Finalizers) > 0:
			if _, err := do(http.MethodDelete, id); err != nil {
				return err
			}
			o.Finalizers = nil
		default:
			continue
		}
		if _, err := maps.Update(ctx, &o, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	select {
	case <-changes.ResultChan():
	case <-ctx.Done():
	}
	return nil
}

func defaultClient() *http.Client { return http.DefaultClient }

// TestANaiveProgramMakesThingsTwice is about each way in which a program can lose what it has made outside.
func TestANaiveProgramMakesThingsTwice(t *testing.T) {
	sc := clouded(naive(defaultClient))
	sc.Steps = sc.Steps[:1]
	found := reconciletest.Singles(t, sc)
	require.NotEmpty(t, found)
	var by []string
	for _, f := range found {
		if !slices.ContainsFunc(f.Detail, func(line string) bool {
			return line == "cloud.example.com /photos .value: A has 1, B has 2"
		}) {
			continue
		}
		by = append(by, f.Replay)
		require.Contains(t, strings.Join(f.Timeline, "\n"), "POST https://cloud.example.com/buckets/: 200")
	}
	all := strings.Join(by, "\n")
	for _, disturbance := range []string{"lose answer to POST cloud.example.com #1",
		"crash after POST cloud.example.com #1", "late 504 to POST cloud.example.com #1",
		"crash before update configmaps #1"} {
		require.Contains(t, all, disturbance)
	}
}

// TestWhatIsLeftOutside deletes the object at the end: a bucket that nothing remembers stays.
func TestWhatIsLeftOutside(t *testing.T) {
	sc := clouded(naive(defaultClient))
	sc.Replay = "v1 seed=0 steps=2: crash before update configmaps #1"
	found := reconciletest.Search(t, sc)
	require.Len(t, found, 1)
	require.Contains(t, strings.Join(found[0].Detail, "\n"), "cloud.example.com /photos: only in B")
}

// TestEachClientReachesTheOutside is about the ways in which programs come by one.
func TestEachClientReachesTheOutside(t *testing.T) {
	for name, client := range map[string]func() *http.Client{
		"the default":    defaultClient,
		"one of its own": func() *http.Client { return &http.Client{Timeout: 30 * time.Second} },
		"a clone": func() *http.Client {
			return &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var last string
			for range 3 {
				story := strings.Join(reconciletest.Story(t, clouded(naive(client)), "v1 seed=0 steps=2: "), "\n")
				require.Contains(t, story, "1: POST https://cloud.example.com/buckets/: 200\n")
				require.Contains(t, story, "1: DELETE https://cloud.example.com/buckets/bucket-1: 200\n")
				require.True(t, last == "" || last == story, "each run is the same:\n%s\n%s", last, story)
				last = story
			}
		})
	}
}

// TestDisturbancesOfTheOutside is about what a program sees.
func TestDisturbancesOfTheOutside(t *testing.T) {
	for disturbance, lines := range map[string][]string{
		"lose answer to POST cloud.example.com #1": {"DELETE https://cloud.example.com/buckets/bucket-2: 200"},
		"no answer to POST cloud.example.com #1": {
			"POST https://cloud.example.com/buckets/: not seen by the server, which the program sees 1m0s later",
			"\n   91.00"}, // it waits for a second, and tries again
		"late answer to POST cloud.example.com #1": {
			"POST https://cloud.example.com/buckets/: 200, which the program sees 20s later",
			"   50.004s  1: update configmaps default/photos: 200"},
		"500 for 20 s from POST cloud.example.com #1": {
			"   49.0", "POST https://cloud.example.com/buckets/: not seen by the server\n   50.0",
			"1: POST https://cloud.example.com/buckets/: 200\n"},
		"429 to DELETE cloud.example.com #1":  {"DELETE https://cloud.example.com/buckets/bucket-1: not seen"},
		"second at POST cloud.example.com #1": {"start of incarnation 2"},
	} {
		sc := clouded(naive(defaultClient))
		story := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=2: "+disturbance), "\n")
		require.Contains(t, story, disturbance)
		for _, line := range lines {
			require.Contains(t, story, line, "%s:\n%s", disturbance, story)
		}
	}
}

// TestAClientThatDoesNotWait gives up before the API does.
func TestAClientThatDoesNotWait(t *testing.T) {
	sc := clouded(naive(func() *http.Client { return &http.Client{Timeout: 10 * time.Second} }))
	story := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=2: no answer to POST cloud.example.com #1"), "\n")
	require.Contains(t, story, "   41.005s  1: POST https://cloud.example.com/buckets/: 200", story)
}

// TestCoverageOfTheOutside is about the report.
func TestCoverageOfTheOutside(t *testing.T) {
	sc := clouded(runBuckets)
	report := reconciletest.Report(t, sc)
	require.Contains(t, report, "at writes to the outside: crash before ")
	require.Contains(t, report, "no answer ")
	require.Regexp(t, `PUT cloud\.example\.com [1-9]\d* of \d+`, report)
}

// TestATransportOfTheTest is asked as it was before.
func TestATransportOfTheTest(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	var asked atomic.Int64
	http.DefaultTransport = fakeTransport(func(req *http.Request) (*http.Response, error) {
		asked.Add(1)
		return &http.Response{StatusCode: http.StatusOK, Request: req, Body: http.NoBody}, nil
	})
	sc := clouded(naive(defaultClient))
	sc.Outside = nil
	for _, f := range reconciletest.Search(t, sc) {
		require.NotEqual(t, "has its APIs served", f.Rule)
	}
	require.Positive(t, asked.Load())
}

type fakeTransport func(*http.Request) (*http.Response, error)

func (f fakeTransport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestAHostThatIsNotThere is a finding with the line of the program.
func TestAHostThatIsNotThere(t *testing.T) {
	sc := clouded(naive(defaultClient))
	sc.Outside = nil
	found := reconciletest.Search(t, sc)
	require.Len(t, found, 1)
	require.Equal(t, "has its APIs served", found[0].Rule)
	require.Regexp(t, `POST https://cloud.example.com/buckets/\?owner=photos, at .*outside_test.go:\d+: `+
		`Scenario.Outside has no such host`, found[0].Detail[0])
}

// broken is an API whose handler does not return.
type broken struct{ serve func() }

func (b broken) ServeHTTP(http.ResponseWriter, *http.Request) { b.serve() }
func (broken) State() any                                     { return nil }

// TestAHandlerThatDoesNotReturn is a mistake of the test, which Check names.
func TestAHandlerThatDoesNotReturn(t *testing.T) {
	for want, serve := range map[string]func(){
		`^the API cloud.example.com panicked at .* outside_test.go:\d+: no bucket$`:     func() { panic("no bucket") },
		`^the API cloud.example.com has ended its goroutine at .* outside_test.go:\d+$`: runtime.Goexit,
	} {
		sc := clouded(naive(defaultClient))
		sc.Outside["cloud.example.com"] = func() reconciletest.API { return broken{func() { serve() }} }
		found := reconciletest.Search(t, sc)
		require.Len(t, found, 1)
		require.Equal(t, "the step works", found[0].Rule)
		require.Regexp(t, want, found[0].Detail[0])
	}
}

// withoutCtx is a right program that gives no request to the cloud the ctx of Run, as some SDKs do not, and says
// goodbye when it ends.
func withoutCtx(ctx context.Context, cfg *rest.Config) error {
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		list, err := core.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			name := list.Items[i].Name
			err = ask(context.Background(), http.MethodPut, "https://cloud.example.com/buckets/"+name+"?owner="+name)
		}
		select {
		case <-ctx.Done():
			goodbye, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = ask(goodbye, http.MethodDelete, "https://cloud.example.com/buckets/programs")
		case <-time.After(20 * time.Second):
		}
	}
	return nil
}

func TestCheckFindsNothingInRequestsWithoutACtx(t *testing.T) {
	sc := clouded(withoutCtx)
	sc.Steps, sc.Off = sc.Steps[:1], []string{"is idempotent"}
	require.Empty(t, reconciletest.Singles(t, sc))
	sc.Run = nil
	sc.Programs = []reconciletest.Program{{Name: "one", Run: withoutCtx}, {Name: "two", Run: withoutCtx}}
	require.Empty(t, reconciletest.Singles(t, sc))
}

// TestWhatIsLeftOfAProgramReachesNothing is about a goroutine that wakes when its program was killed, and another
// incarnation runs.
func TestWhatIsLeftOfAProgramReachesNothing(t *testing.T) {
	sc := clouded(func(ctx context.Context, cfg *rest.Config) error {
		begin := time.Now()
		go func() {
			time.Sleep(40 * time.Second)
			_ = ask(context.Background(), http.MethodPut, fmt.Sprint("https://cloud.example.com/buckets/",
				begin.Unix()%1000, "?owner=a"))
		}()
		<-ctx.Done()
		return nil
	})
	story := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=2: down in step 1"), "\n")
	require.Regexp(t, ` 70\.\d+s  2: PUT https://cloud.example.com/buckets/\d+: 200`, story)
	require.NotRegexp(t, ` 40\.\d+s .*PUT https://cloud.example.com/buckets/`, story)
}

// TestTheBodyOfARequestIsClosed whatever happens to the request.
func TestTheBodyOfARequestIsClosed(t *testing.T) {
	sc := clouded(func(ctx context.Context, _ *rest.Config) error {
		for ctx.Err() == nil {
			body, writer := io.Pipe()
			go func() { _, _ = writer.Write([]byte("photos")) }()
			resp, err := http.Post("https://cloud.example.com/buckets/?owner=photos", "text/plain", body)
			if err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK {
				<-ctx.Done()
			}
			time.Sleep(time.Second)
		}
		return nil
	})
	sc.Steps, sc.Off = sc.Steps[:1], []string{"is idempotent", "ends alike"}
	require.Empty(t, reconciletest.Singles(t, sc))
}

// TestAClientThatDoesNotWaitForAHandler sees its timeout, and what the handler does counts all the same.
func TestAClientThatDoesNotWaitForAHandler(t *testing.T) {
	for name, client := range map[string]func() *http.Client{
		"the default": func() *http.Client { return &http.Client{Timeout: 10 * time.Second} },
		"a clone": func() *http.Client {
			return &http.Client{Timeout: 10 * time.Second, Transport: http.DefaultTransport.(*http.Transport).Clone()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sc := clouded(naive(client))
			sc.Outside["cloud.example.com"] = func() reconciletest.API {
				return &sleepy{cloud: cloud{buckets: map[string]string{}}}
			}
			story := strings.Join(reconciletest.Story(t, sc, "v1 seed=0 steps=2: "), "\n")
			require.Contains(t, story, "1: POST https://cloud.example.com/buckets/: 200, for which the program did "+
				"not wait\n")
			require.Contains(t, story, "1: POST https://cloud.example.com/buckets/: 200\n")
			require.Contains(t, story, "1: DELETE https://cloud.example.com/buckets/bucket-2: 200")
		})
	}
}

// sleepy takes a minute for its first request.
type sleepy struct {
	cloud
	awake bool
}

func (s *sleepy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !s.awake {
		s.awake = true
		time.Sleep(time.Minute)
	}
	s.cloud.ServeHTTP(w, req)
}

// TestAStepMayUseOtherGoroutines for its requests, and clones.
func TestAStepMayUseOtherGoroutines(t *testing.T) {
	sc := clouded(runBuckets)
	sc.Steps = append([]reconciletest.Step{reconciletest.StepFunc("give", func(_ context.Context,
		_ *rest.Config) error {
		var errs [2]error
		for i, client := range []*http.Client{http.DefaultClient, {
			Transport: http.DefaultTransport.(*http.Transport).Clone()}} {
			var one sync.WaitGroup
			one.Go(func() {
				resp, err := client.Post("https://cloud.example.com/buckets/?owner=user", "text/plain", nil)
				if errs[i] = err; err == nil {
					errs[i] = resp.Body.Close()
				}
			})
			one.Wait()
		}
		return errors.Join(errs[:]...)
	})}, sc.Steps...)
	require.Empty(t, reconciletest.Singles(t, sc))
}

// TestCheckFindsNothingInWhatIsDoneOutsideByTheClock and in no other way by a restart.
func TestCheckFindsNothingInWhatIsDoneOutsideByTheClock(t *testing.T) {
	sc := clouded(func(ctx context.Context, _ *rest.Config) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Until(time.Now().Truncate(35 * time.Second).Add(35 * time.Second))):
				_ = ask(ctx, http.MethodPost, "https://cloud.example.com/buckets/?owner=copies")
			}
		}
	})
	sc.Steps, sc.Replay = sc.Steps[:1], "v1 seed=0 steps=1: "
	require.Empty(t, reconciletest.Search(t, sc))
}

// TestRequestsOfOneInstantAreInTheOrderOfTheirContents and not in that in which their goroutines come.
func TestRequestsOfOneInstantAreInTheOrderOfTheirContents(t *testing.T) {
	for name, client := range map[string]func() *http.Client{
		"the default": defaultClient,
		"a clone": func() *http.Client {
			return &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			sc := clouded(func(ctx context.Context, _ *rest.Config) error {
				owners := []string{"a", "b"}
				if runs.Add(1)%4 > 1 { // there is a restart in each run
					slices.Reverse(owners)
				}
				var both sync.WaitGroup
				for i, owner := range owners {
					both.Go(func() {
						time.Sleep(time.Minute - time.Duration(i)) // who comes first
						time.Sleep(time.Duration(i))
						resp, err := client().Post("https://cloud.example.com/buckets/?owner="+owner, "text/plain", nil)
						if err != nil {
							return
						}
						defer resp.Body.Close()
						if id, err := io.ReadAll(resp.Body); err == nil && owner == "a" {
							_ = ask(ctx, http.MethodDelete, "https://cloud.example.com/buckets/"+string(id))
						}
					})
				}
				both.Wait()
				<-ctx.Done()
				return nil
			})
			sc.Steps = sc.Steps[:1]
			traces := reconciletest.Traces(t, sc, "v1 seed=0 steps=1: ", 6)
			require.Regexp(t, `DELETE https://cloud.example.com/buckets/bucket-\d: 200`, traces[0])
			for _, trace := range traces {
				require.Equal(t, traces[0], trace)
			}
		})
	}
}
