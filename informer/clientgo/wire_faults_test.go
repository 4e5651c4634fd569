package clientgo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// network is a transport below that of Wire, on which lists and watches go wrong in a random way until it is calm.
type network struct {
	next http.RoundTripper

	mu     sync.Mutex
	random *rand.Rand
	calm   bool
	faults map[string]int // how often each has happened
}

// status is the body of an error.
func status(code int, reason metav1.StatusReason) []byte {
	body, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "as the test wants it"})
	return body
}

func answered(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body))}
}

var errBroken = errors.New("the test has broken the connection")

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	fault := n.random.IntN(24)
	at := n.random.IntN(3000)
	if n.calm {
		fault = 100
	}
	n.faults[fmt.Sprint(fault)]++
	n.mu.Unlock()
	watches := r.URL.Query().Get("watch") != ""
	switch {
	case fault == 0:
		return nil, errBroken
	case fault == 1:
		return answered(r, http.StatusGone, status(http.StatusGone, metav1.StatusReasonExpired)), nil
	case fault == 2:
		return answered(r, http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden)), nil
	case fault == 3:
		resp := answered(r, http.StatusTooManyRequests, status(http.StatusTooManyRequests, "TooManyRequests"))
		resp.Header.Set("Retry-After", "1")
		return resp, nil
	case fault == 4:
		return answered(r, http.StatusInternalServerError, []byte("it is no status")), nil
	case fault == 5 && !watches:
		return answered(r, http.StatusOK, []byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},`+
			`"columnDefinitions":[],"rows":[]}`)), nil
	case fault == 5:
		event := append([]byte(`{"type":"ERROR","object":`), status(http.StatusGone, metav1.StatusReasonExpired)...)
		return answered(r, http.StatusOK, append(event, "}\n"...)), nil
	case fault == 6:
		return answered(r, http.StatusOK, []byte("<html>a proxy's page</html>")), nil
	case fault < 10: // the server has no protobuf
		r = r.Clone(r.Context())
		r.Header.Set("Accept", strings.ReplaceAll(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf",
			"application/json"))
	}
	resp, err := n.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	switch {
	case fault == 10 || fault == 11:
		resp.Body = &damaged{ReadCloser: resp.Body, left: at, err: io.ErrUnexpectedEOF}
	case fault == 12: // the body ends as if it were whole
		resp.Body = &damaged{ReadCloser: resp.Body, left: at, err: io.EOF}
	case fault == 13:
		resp.Body = &damaged{ReadCloser: resp.Body, left: at, err: errBroken}
	case fault == 14 && resp.Header.Get("Content-Type") == runtime.ContentTypeJSON: // protobuf has bytes of any kind
		resp.Body = &damaged{ReadCloser: resp.Body, left: at, garbage: true}
	case fault == 15 || fault == 16:
		resp.Body = &damaged{ReadCloser: resp.Body, left: 1 << 40, slow: time.Second}
	}
	return resp, nil
}

// damaged is a body that is slow, or ends too soon, or goes over into garbage.
type damaged struct {
	io.ReadCloser
	left    int
	err     error
	garbage bool
	slow    time.Duration
}

func (d *damaged) Read(p []byte) (int, error) {
	switch {
	case d.left == 0 && d.garbage:
		for i := range p {
			p[i] = '<'
		}
		d.garbage, d.err = false, io.ErrUnexpectedEOF
		return len(p), nil
	case d.left == 0:
		return 0, d.err
	case d.slow > 0:
		time.Sleep(d.slow)
		p = p[:min(len(p), 500)]
	}
	n, err := d.ReadCloser.Read(p[:min(len(p), d.left)])
	d.left -= n
	return n, err
}

// story is what an unlucky program knows in the end.
type story struct {
	held    map[string]string
	version string
	faults  map[string]int
	decoded int
}

func unlucky(t *testing.T, p program, seed uint64, wire bool,
	construct func(cache.ListerWatcher, runtime.Object) cache.SharedIndexInformer) (s story) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Seed: seed})
		random := rand.New(rand.NewPCG(seed, 7))
		m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
		exists := map[string]bool{}
		happen := func() {
			name := fmt.Sprint("map-", random.IntN(8))
			switch {
			case !exists[name]:
				m.create(name)
				exists[name] = true
			case random.IntN(3) == 0:
				m.remove(name)
				delete(exists, name)
			default:
				m.update(name, fmt.Sprint(random.IntN(1000)))
			}
		}
		for range 10 {
			happen()
		}
		n := &network{random: rand.New(rand.NewPCG(seed, 13)), faults: map[string]int{}}
		cfg := server.Link().Config()
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			n.next = next
			return n
		})
		if wire {
			cfg = Wire(cfg)
		}
		lw := count(p.client(t, cfg), seed%2 == 0)
		inf := construct(lw, p.example)
		w := &knowledge{known: map[string]string{}}
		add(t, inf, w)
		stop := run(t, inf)
		for range 40 {
			switch random.IntN(8) {
			case 0:
				server.CutWatches()
			case 1:
				server.Compact()
			case 2:
				time.Sleep(time.Duration(random.IntN(30_000)) * time.Millisecond)
			default:
				happen()
			}
			if random.IntN(2) == 0 {
				synctest.Wait()
			}
		}
		n.mu.Lock()
		n.calm = true
		n.mu.Unlock()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		require.True(t, inf.HasSynced())
		s = story{dump(inf.GetStore()), storeVersion(inf), n.faults, lw.total()}
		require.Len(t, s.held, len(exists))
		require.Empty(t, w.complaints)
		require.Equal(t, s.held, w.known)
		stop()
	})
	return s
}

// knowledge is a handler that complains about what does not fit to what it was told before.
type knowledge struct {
	known      map[string]string
	complaints []string
}

func (k *knowledge) of(obj any) (key, now string) {
	key, _ = cache.MetaNamespaceKeyFunc(obj)
	encoded, _ := json.Marshal(obj)
	return key, string(encoded)
}

func (k *knowledge) OnAdd(obj any, _ bool) {
	key, now := k.of(obj)
	if _, known := k.known[key]; known {
		k.complaints = append(k.complaints, "added again: "+key)
	}
	k.known[key] = now
}

func (k *knowledge) OnUpdate(old, obj any) {
	_, before := k.of(old)
	key, now := k.of(obj)
	if k.known[key] != before {
		k.complaints = append(k.complaints, "updated from something else: "+key)
	}
	k.known[key] = now
}

func (k *knowledge) OnDelete(obj any) {
	key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if _, known := k.known[key]; !known {
		k.complaints = append(k.complaints, "deleted, and not known: "+key)
	}
	delete(k.known, key)
}

// withoutKinds leaves out what differs in client-go, too, between what was listed and what was watched.
func withoutKinds(held map[string]string) map[string]string {
	bare := map[string]string{}
	for key, encoded := range held {
		var u unstructured.Unstructured
		_ = json.Unmarshal([]byte(encoded), &u.Object)
		u.SetKind("")
		u.SetAPIVersion("")
		again, _ := json.Marshal(u.Object)
		bare[key] = string(again)
	}
	return bare
}

// Whatever goes wrong on the way, a program with Wire and one with client-go's informers end with the same.
func TestWireInRandomHistories(t *testing.T) {
	// client-go delays whoever reports errors, by a clock that does not know of bubbles.
	defer func(handlers []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = handlers }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) {}}

	seeds := uint64(30)
	if os.Getenv("THERMOSTAT_SOAK") != "" {
		seeds = 3000
	}
	faults := map[string]int{}
	for seed := range seeds {
		p := programs[seed%uint64(len(programs))]
		t.Logf("seed %d, %s", seed, p.name)
		want := unlucky(t, p, seed, false, theirs)
		got := unlucky(t, p, seed, true, ours)
		require.Equal(t, withoutKinds(want.held), withoutKinds(got.held))
		require.Equal(t, want.version, got.version)
		t.Logf("the client has decoded %d objects, and %d with Wire", want.decoded, got.decoded)
		for fault, n := range got.faults {
			faults[fault] += n
		}
	}
	for fault := range 17 {
		require.Positive(t, faults[fmt.Sprint(fault)], "no request has met fault %d", fault)
	}
}
