package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

func restPods[T Object](config *rest.Config, over *http.Client) (Client[*List[T]], error) {
	return restOver[T](config, over, podsResource, "")
}

func restOver[T Object](config *rest.Config, over *http.Client, gvr schema.GroupVersionResource,
	kind string) (*Resource[T], error) {
	config = rest.CopyConfig(config)
	config.Transport = over.Transport
	return NewResource[T](config, gvr, ResourceOptions{Kind: kind})
}

func TestRESTInJSON(t *testing.T) {
	followsOverHTTP[*corev1.Pod](t, false, restPods[*corev1.Pod])
}

func TestRESTInProtobuf(t *testing.T) {
	followsOverHTTP[*corev1.Pod](t, true, restPods[*corev1.Pod])
}

func TestRESTUnstructured(t *testing.T) {
	followsOverHTTP[*unstructured.Unstructured](t, false, restPods[*unstructured.Unstructured])
}

func TestRESTMetadata(t *testing.T) {
	followsOverHTTP[*metav1.PartialObjectMetadata](t, false, restPods[*metav1.PartialObjectMetadata])
}

// overREST runs fn in virtual time, for JSON and for protobuf, with an informer on the bytes of a server that holds the
// pods a, b and c.
func overREST(t *testing.T, opts Options[*corev1.Pod], fn func(t *testing.T, s *overHTTP, inf *informerOfPods)) {
	t.Helper()
	for _, protobuf := range []bool{false, true} {
		for _, streaming := range []bool{false, true} {
			t.Run(fmt.Sprintf("protobuf=%t,streaming=%t", protobuf, streaming), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &overHTTP{api: newPodAPI(), protobuf: protobuf}
					for _, name := range []string{"a", "b", "c"} {
						s.api.Create(pod(name))
					}
					opts.DisableWatchList = !streaming
					inf, err := New[*corev1.Pod](podsOver(t, s), opts)
					require.NoError(t, err)
					fn(t, s, inf)
				})
			})
		}
	}
}

func podsOver(t *testing.T, transport http.RoundTripper) Client[*List[*corev1.Pod]] {
	t.Helper()
	client, err := restPods[*corev1.Pod](&rest.Config{Host: "http://server", QPS: -1},
		&http.Client{Transport: transport})
	require.NoError(t, err)
	return client
}

// One object that cannot be decoded is rejected by name, and nothing else happens to it or to the others.
func TestAnObjectThatDoesNotDecodeIsQuarantinedAlone(t *testing.T) {
	overREST(t, Options[*corev1.Pod]{}, func(t *testing.T, s *overHTTP, inf *informerOfPods) {
		s.damage = wiretest.SpoilSpec("b")
		told := &history{inf: inf, rounds: rounds{}}
		_, err := inf.AddHandler(told.handle, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		require.Equal(t, []string{"a", "c"}, names(inf))
		require.Equal(t, 1, inf.Health().Rejected)
		require.ErrorIs(t, inf.Invalid(named("b")), wire.ErrUndecodable)
		require.ErrorContains(t, inf.Invalid(named("b")), "default/b")
		require.NotContains(t, inf.Invalid(named("b")).Error(), "swordfish")

		// One that was good keeps its good state, and is told of again when it is well.
		s.damage = wiretest.SpoilSpec("a")
		s.api.Update("default", "b", func(*corev1.Pod) {})
		last := s.api.Update("default", "a", func(p *corev1.Pod) { p.Spec.NodeName = "node-1" })
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "c"}, names(inf), "%s %v", inf.Health(), inf.Invalid(named("b")))
		a, _ := inf.Get(named("a"))
		require.Empty(t, a.Spec.NodeName)
		require.ErrorIs(t, inf.Invalid(named("a")), wire.ErrUndecodable)
		require.NoError(t, inf.Invalid(named("b")))
		require.Equal(t, last.ResourceVersion, inf.ResourceVersion(metav1.NamespaceAll),
			"what is quarantined is dealt with")
		s.damage = nil
		s.api.Update("default", "a", func(*corev1.Pod) {})
		synctest.Wait()
		require.NoError(t, inf.Invalid(named("a")))

		// Its deletion needs no more than its name.
		s.damage = wiretest.SpoilSpec("c")
		s.api.Delete("default", "c")
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, names(inf))
		require.Equal(t, 1, inf.Health().Lists)
		require.NoError(t, told.err())
	})
}

// Objects share the labels that they have in common, but a Transform may change its own.
func TestWhatObjectsShareIsNotWhatATransformChanges(t *testing.T) {
	labelled := func(s *overHTTP) {
		for i := range 80 { // the first 32 share nothing
			p := pod(fmt.Sprintf("p%02d", i))
			app := []string{"shop", "bank", "post"}[i%3]
			p.Labels = map[string]string{"app": app}
			s.api.Create(p)
		}
	}
	held := func(inf *informerOfPods, name string) *corev1.Pod {
		p, ok := inf.Get(named(name))
		require.True(t, ok)
		return p
	}
	overREST(t, Options[*corev1.Pod]{}, func(t *testing.T, s *overHTTP, inf *informerOfPods) {
		labelled(s)
		run(t, inf)
		synctest.Wait()
		require.Equal(t, map[string]string{"app": "bank"}, held(inf, "p79").Labels)
		require.NotZero(t, wiretest.SharedLabels(slices.Collect(inf.All())))
	})
	note := func(p *corev1.Pod) (*corev1.Pod, error) {
		if p.Labels != nil {
			p.Labels["name"] = p.Name
		}
		return p, nil
	}
	overREST(t, Options[*corev1.Pod]{Transform: note}, func(t *testing.T, s *overHTTP, inf *informerOfPods) {
		labelled(s)
		run(t, inf)
		synctest.Wait()
		for _, name := range []string{"p76", "p79"} {
			require.Equal(t, map[string]string{"app": "bank", "name": name}, held(inf, name).Labels)
		}
	})
}

// An object that has lost its name, too, is only counted where it is listed; where it is watched, the list is asked
// what it was.
func TestAnObjectOfWhichNothingCanBeReadIsCountedByTheList(t *testing.T) {
	overREST(t, Options[*corev1.Pod]{}, func(t *testing.T, s *overHTTP, inf *informerOfPods) {
		run(t, inf)
		synced(t, inf)
		s.damage = func(of string, encoded []byte) []byte {
			switch {
			case of != "b":
				return encoded
			case encoded[0] == '{':
				return []byte(`{"metadata":{"name":5,"resourceVersion":"5"}}`)
			}
			return []byte{1<<3 | 2, 0xff}
		}
		s.api.Update("default", "b", func(*corev1.Pod) {})
		s.api.Create(pod("d"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Contains(t, names(inf), "d", "%s", inf.Health())
		require.ErrorIs(t, inf.Health().LastBadObject, wire.ErrUndecodable)
		require.Greater(t, inf.Health().Lists, 1)

		// It may be any of those that such a list does not contain, and it has not been deleted.
		s.api.Hold() // no watch is to tell of it
		s.api.Delete("default", "c")
		s.api.Compact()
		s.api.Cut()
		s.api.Release()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "c", "d"}, names(inf))
		s.damage = nil
		inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "d"}, names(inf))
	})
}

// An object beyond all measure is rejected without being held.
func TestAnObjectThatIsTooLargeIsQuarantinedAlone(t *testing.T) {
	huge := bytes.Repeat([]byte{'x'}, 16<<20)
	overREST(t, Options[*corev1.Pod]{}, func(t *testing.T, s *overHTTP, inf *informerOfPods) {
		s.damage = func(of string, encoded []byte) []byte {
			switch {
			case of != "b":
				return encoded
			case encoded[0] == '{':
				return fmt.Appendf(nil, `%s,"more":"%s"}`, encoded[:len(encoded)-1], huge)
			}
			return wiretest.ProtoField(encoded, 3, huge)
		}
		run(t, inf)
		synced(t, inf)
		require.Equal(t, []string{"a", "c"}, names(inf), "%s", inf.Health())
		require.ErrorIs(t, inf.Invalid(named("b")), ErrTooLarge)
		last := s.api.Update("default", "b", func(*corev1.Pod) {})
		synctest.Wait()
		require.Equal(t, last.ResourceVersion, inf.ResourceVersion(metav1.NamespaceAll), "%s", inf.Health().LastError)
		require.Equal(t, 1, inf.Health().Lists)
	})
}

// answers serves one body for lists, then one for each watch, and counts requests.
type answers struct {
	mu      sync.Mutex // guards the rest, once it serves
	list    func() []byte
	watches []io.Reader
	asked   []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		verb := "LIST"
		if r.URL.Query().Get("limit") == "1" {
			verb = "ASK"
		}
		a.asked = append(a.asked, verb)
		return answerBytes(r, http.StatusOK, "", a.list()), nil
	}
	a.asked = append(a.asked, "WATCH "+r.URL.Query().Get("resourceVersion"))
	var body io.Reader = never{r.Context()}
	if len(a.watches) > 0 {
		body, a.watches = a.watches[0], a.watches[1:]
	}
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(body), Header: http.Header{}}, nil
}

// serve changes what lists are answered with, and returns what was asked since the last change.
func (a *answers) serve(list func() []byte) (asked []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked, a.asked, a.list = a.asked, nil, list
	return asked
}

// never is a connection on which nothing comes.
type never struct{ ctx context.Context }

func (n never) Read([]byte) (int, error) {
	<-n.ctx.Done()
	return 0, n.ctx.Err()
}

func podAt(name, version string) *corev1.Pod {
	p := pod(name)
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.UID, p.ResourceVersion = types.UID("uid-"+name), version
	return p
}

func podList(version string, pods ...*corev1.Pod) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

// The event that a broken connection leaves behind is dropped, and comes again; bytes that are nothing send the
// informer to the list.
func TestTruncatedAndGarbledWatches(t *testing.T) {
	for name, form := range map[string]struct {
		list  func(*corev1.PodList, func(string, []byte) []byte) []byte
		frame func(watch.EventType, runtime.Object, func(string, []byte) []byte) []byte
	}{"JSON": {wiretest.JSONList, wiretest.JSONFrame}, "protobuf": {wiretest.ProtoList, wiretest.ProtoFrame}} {
		added := form.frame(watch.Added, podAt("b", "6"), nil)
		for _, c := range []struct {
			name  string
			watch []byte
			asked []string
		}{
			{"whole", added, []string{"LIST", "WATCH 5", "WATCH 6", "ASK"}},
			{"truncated", slices.Concat(added, form.frame(watch.Added, podAt("c", "7"), nil)[:30]),
				[]string{"LIST", "WATCH 5", "WATCH 6", "ASK"}},
			{"garbled once", slices.Concat(added, []byte("\x00\x00\x00\x06garble")),
				[]string{"LIST", "WATCH 5", "WATCH 6", "ASK"}},
			{"an error", slices.Concat(added, form.frame(watch.Error, &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410,
				Reason: metav1.StatusReasonExpired,
			}, nil)), []string{"LIST", "WATCH 5", "LIST", "WATCH 9"}},
			{"a table", slices.Concat(added, form.frame(watch.Added, &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Table"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
			}, nil)), []string{"LIST", "WATCH 5", "LIST", "WATCH 9"}},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := &answers{watches: []io.Reader{bytes.NewReader(c.watch)}}
					server.list = func() []byte {
						version := map[bool]string{true: "5", false: "9"}[len(server.asked) == 1]
						return form.list(podList(version, podAt("a", "4")), nil)
					}
					inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
					require.NoError(t, err)
					run(t, inf)
					synced(t, inf)
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, c.asked, server.asked, "%s", inf.Health())
					if slices.Contains(c.asked, "WATCH 6") {
						require.Equal(t, []string{"a", "b"}, names(inf))
					}
				})
			})
		}
	}
}

// HTTP tells of each connection that is lost that something is missing: of the answer, which has no end, and not
// of an event. However often that happens to a resource that is quiet, it is no reason for a list.
func TestAConnectionThatIsLostBetweenEventsIsNoReasonForAList(t *testing.T) {
	for name, c := range map[string]struct {
		event []byte
		asked []string
	}{
		"nothing": {nil, []string{"LIST", "WATCH 5", "WATCH 5", "ASK", "WATCH 5", "ASK", "WATCH 5", "ASK"}},
		"JSON": {wiretest.JSONFrame(watch.Added, podAt("b", "6"), nil),
			[]string{"LIST", "WATCH 5", "WATCH 6", "ASK", "WATCH 6", "ASK", "WATCH 6", "ASK"}},
		"protobuf": {wiretest.ProtoFrame(watch.Added, podAt("b", "6"), nil),
			[]string{"LIST", "WATCH 5", "WATCH 6", "ASK", "WATCH 6", "ASK", "WATCH 6", "ASK"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := iotest.ErrReader(io.ErrUnexpectedEOF)
				server := &answers{watches: []io.Reader{io.MultiReader(bytes.NewReader(c.event), lost), lost, lost}}
				server.list = func() []byte {
					version := map[bool]string{true: "5", false: "9"}[len(server.asked) == 1]
					return wiretest.ProtoList(podList(version, podAt("a", "4")), nil)
				}
				inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synced(t, inf)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, c.asked, server.asked, "%s", inf.Health())
			})
		})
	}
}

// Lists that are no lists of objects are errors, and nothing of them is believed.
func TestOddLists(t *testing.T) {
	good := podList("5", podAt("a", "4"))
	for name, c := range map[string]struct {
		body string
		want error
	}{
		"a table in JSON": {`{"kind":"Table","apiVersion":"meta.k8s.io/v1",` +
			`"metadata":{"resourceVersion":"5"},"rows":[]}`, wire.ErrViolation},
		"a status in JSON":    {`{"kind":"Status","apiVersion":"v1","metadata":{},"code":500}`, wire.ErrViolation},
		"a table in protobuf": {string(wiretest.Enveloped("Table", []byte{})), wire.ErrViolation},
		"one object": {`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"5"}}`,
			wire.ErrViolation},
		"no kind":                {`{"metadata":{"resourceVersion":"5"},"items":[]}`, wire.ErrViolation},
		"no version":             {`{"kind":"PodList","apiVersion":"v1","items":[]}`, wire.ErrViolation},
		"no version in protobuf": {string(wiretest.Enveloped("PodList", []byte{})), wire.ErrViolation},
		"HTML":                   {`<html>`, wire.ErrUndecodable},
		"text":                   {`"hello"`, wire.ErrUndecodable},
		"items are no array": {`{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":{"a":{}}}`,
			wire.ErrUndecodable},
		"items twice": {`{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[],"items":[]}`,
			wire.ErrUndecodable},
		"odd metadata":         {`{"kind":"PodList","metadata":"5","items":[]}`, wire.ErrUndecodable},
		"odd kind":             {`{"kind":1,"metadata":{"resourceVersion":"5"},"items":[]}`, wire.ErrUndecodable},
		"nothing":              {``, io.ErrUnexpectedEOF},
		"half a JSON list":     {string(wiretest.JSONList(good, nil)[:100]), io.ErrUnexpectedEOF},
		"half a protobuf list": {string(wiretest.ProtoList(good, nil)[:60]), io.ErrUnexpectedEOF},
		"only the magic":       {wiretest.Magic, io.ErrUnexpectedEOF},
		"another magic":        {"k9s", wire.ErrUndecodable},
		"no envelope":          {wiretest.Magic + "\x0f\xff\xff", wire.ErrUndecodable},
		"a length without end": {wiretest.Magic + "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
			wire.ErrUndecodable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answers{list: func() []byte { return []byte(c.body) }}
				inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, inf.WaitForSync(ctx), c.want)
				require.Equal(t, Failed, inf.Health().State)
			})
		})
	}
}

// A custom resource's list says its version at the end. While it is not known whether the list is older than the store,
// nothing of it comes in.
func TestAListThatSaysItsVersionLastDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		versions := []string{"50", "40", "60"}
		server := &answers{watches: []io.Reader{strings.NewReader(
			`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`)}}
		server.list = func() []byte {
			v := versions[0]
			versions = versions[1:]
			item, _ := json.Marshal(podAt("at-"+v, v))
			return fmt.Appendf(nil, `{"apiVersion":"v1","items":[%s],"kind":"PodList",`+
				`"metadata":{"resourceVersion":"%s"}}`, item, v)
		}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		var told []string
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) { told = append(told, e.Type.String()+" "+e.Key.Name) },
			HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, versions)
		require.ErrorIs(t, inf.Health().LastError, errWentBack)
		require.Equal(t, []string{"Added at-50", "Added at-60", "Deleted at-50"}, told)
	})
}

// The objects of a list are in the store while the rest of it is still on its way.
func TestAListFlowsIntoTheStoreAsItArrives(t *testing.T) {
	for name, form := range map[string]func(*corev1.PodList,
		func(string, []byte) []byte) []byte{"JSON": wiretest.JSONList,
		"protobuf": wiretest.ProtoList} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := form(podList("5", podAt("a", "3"), podAt("b", "4")), nil)
				half := bytes.Index(body, []byte("uid-b"))
				out, in := io.Pipe()
				serve := roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Get("watch") != "" {
						return &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(never{r.Context()})}, nil
					}
					return &http.Response{StatusCode: 200, Request: r, Body: out}, nil
				})
				inf, err := New[*corev1.Pod](podsOver(t, serve), Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				_, err = in.Write(body[:half])
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []string{"a"}, names(inf))
				require.False(t, inf.HasSynced())
				_, err = in.Write(body[half:])
				require.NoError(t, err)
				in.Close()
				synctest.Wait()
				require.Equal(t, []string{"a", "b"}, names(inf))
				require.True(t, inf.HasSynced())
			})
		})
	}
}

// A list may take as long as it likes, as long as it goes on.
func TestAListThatFallsSilentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := roundTripper(func(r *http.Request) (*http.Response, error) {
			out, in := io.Pipe()
			context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) })
			go func() {
				body := wiretest.JSONList(podList("5", podAt("a", "1"), podAt("b", "2"), podAt("c", "3"),
					podAt("d", "4")), nil)
				for _, name := range []string{"b", "c", "d", "never"} {
					end := bytes.Index(body, []byte("uid-"+name))
					if end < 0 {
						return // silence
					}
					if _, err := in.Write(body[:end]); err != nil {
						return
					}
					body = body[end:]
					select {
					case <-time.After(listTimeout - time.Second):
					case <-r.Context().Done():
					}
				}
			}()
			return &http.Response{StatusCode: 200, Request: r, Body: out}, nil
		})
		inf, err := New[*corev1.Pod](podsOver(t, serve), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(3*listTimeout - 5*time.Second)
		synctest.Wait()
		require.Equal(t, Listing, inf.Health().State, "%s", inf.Health())
		time.Sleep(listTimeout)
		synctest.Wait()
		require.ErrorIs(t, inf.Health().LastError, errSilent)
		require.Equal(t, []string{"a", "b", "c"}, names(inf), "%s %v", inf.Health(), inf.Invalid(named("b")))
	})
}

// A name may be as long as an object; what is written about it is not.
func TestLongNamesAreCutInErrors(t *testing.T) {
	long := strings.Repeat("é", 5000)
	requireBrief := func(t *testing.T, err error) {
		t.Helper()
		require.ErrorContains(t, err, "é...")
		require.Less(t, len(err.Error()), 1000)
	}
	picky := func(p *corev1.Pod) (*corev1.Pod, error) {
		if p.Name[0] == '3' {
			return nil, errPicky
		}
		return p, nil
	}
	overREST(t, Options[*corev1.Pod]{Transform: picky},
		func(t *testing.T, s *overHTTP, inf *informerOfPods) {
			s.api.Create(pod("2" + long))
			s.damage = wiretest.SpoilSpec("2" + long)
			s.api.Create(pod("3" + long[:500]))
			run(t, inf)
			synctest.Wait()
			requireBrief(t, inf.Invalid(named("2"+long)))
			requireBrief(t, inf.Invalid(named("3"+long[:500])))
		})
	for _, event := range []watch.Event{
		{Type: watch.EventType(long), Object: podAt("a", "9")},
		{Type: watch.EventType(long), Object: pod("a")},
	} {
		bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synced(t, inf)
			synctest.Wait()
			p.Inject(event)
			synctest.Wait()
			requireBrief(t, inf.Health().LastError)
			healed(t, p, inf, told)
		})
	}
}

// REST is a Client for others, too.
func TestRESTIsAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &overHTTP{api: newPodAPI(), protobuf: true}
		s.api.Create(pod("a"))
		var asked []*http.Request
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r)
			return s.RoundTrip(r)
		})
		pods, err := restOver[*corev1.Pod](&rest.Config{Host: "http://server"}, &http.Client{Transport: transport},
			podsResource, "")
		require.NoError(t, err)
		client := pods.In("default")
		list, err := client.List(t.Context(), metav1.ListOptions{Limit: 7})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		require.NoError(t, err)
		e := <-w.ResultChan()
		require.Equal(t, "a", e.Object.(*corev1.Pod).Name, "%v", e)
		w.Stop()
		w.Stop()
		require.Equal(t, "/api/v1/namespaces/default/pods", asked[0].URL.Path)
		require.Equal(t, "limit=7", asked[0].URL.RawQuery)
		require.Equal(t, "application/vnd.kubernetes.protobuf,application/json", asked[0].Header.Get("Accept"))
		require.Equal(t, "resourceVersion=1&watch=true", asked[1].URL.RawQuery)

		s.api.BeforeList = func(metav1.ListOptions) error { return errForbidden }
		list, err = client.List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err))
		require.Nil(t, list)
	})
}

// Nothing is tried again behind the informer's back, and Retry-After comes through.
func TestRESTDoesNotRetryByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), []time.Duration{}
		busy := roundTripper(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, time.Since(began))
			resp := answerBytes(r, http.StatusTooManyRequests, "text/plain", []byte("too many requests"))
			resp.Header.Set("Retry-After", "100")
			return resp, nil
		})
		inf, err := New[*corev1.Pod](podsOver(t, busy), Options[*corev1.Pod]{})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(150 * time.Second)
		synctest.Wait()
		require.Len(t, asked, 2)
		require.GreaterOrEqual(t, asked[1], 100*time.Second)
		require.True(t, apierrors.IsTooManyRequests(inf.Health().LastError))
	})
}

// A relist hands on what is newer than the store, and what the store has, before it has shown its version.
func TestARelistThatSaysItsVersionLastHoldsLittleBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := func(version string, pods ...*corev1.Pod) []byte {
			var items [][]byte
			for _, p := range pods {
				item, _ := json.Marshal(p)
				items = append(items, item)
			}
			return fmt.Appendf(nil, `{"apiVersion":"v1","items":[%s],"kind":"PodList",`+
				`"metadata":{"resourceVersion":"%s"}}`, bytes.Join(items, []byte(",")), version)
		}
		out, in := io.Pipe()
		lists := 0
		serve := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") != "" {
				return &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(never{r.Context()})}, nil
			}
			if lists++; lists == 1 {
				return answerBytes(r, http.StatusOK, "", body("50", podAt("a", "40"), podAt("b", "41"))), nil
			}
			return &http.Response{StatusCode: 200, Request: r, Body: out}, nil
		})
		inf, err := New[*corev1.Pod](podsOver(t, serve), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		inf.Relist(metav1.NamespaceAll, nil)
		relist := body("70", podAt("a", "40"), podAt("b", "60"), podAt("c", "45"))
		end := bytes.Index(relist, []byte(`],"kind":"PodList"`))
		_, err = in.Write(relist[:end])
		require.NoError(t, err)
		synctest.Wait()
		b, _ := inf.Get(named("b"))
		require.Equal(t, "60", b.ResourceVersion, "it is newer than all that the store has had")
		_, held := inf.Get(named("c"))
		require.False(t, held, "it may have been deleted before 50")
		_, err = in.Write(relist[end:])
		require.NoError(t, err)
		in.Close()
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "c"}, names(inf))
		require.Equal(t, "70", inf.ResourceVersion(metav1.NamespaceAll))
	})
}

// strict is an object that decodes itself and wants a spec, which no bookmark has.
type strict struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct{ Size int } `json:"spec"`
}

func (s *strict) DeepCopyObject() runtime.Object { c := *s; return &c }

func (s *strict) UnmarshalJSON(b []byte) error {
	type plain strict
	if err := json.Unmarshal(b, (*plain)(s)); err != nil {
		return err
	}
	if s.Spec.Size == 0 {
		return errors.New("size is zero")
	}
	return nil
}

// A bookmark is no object: of its body only the version counts.
func TestABookmarkNeedNotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bookmark := func(version, annotations string) string {
			return `{"type":"BOOKMARK","object":{"kind":"Strict","apiVersion":"v1","metadata":{"resourceVersion":"` +
				version + `"` + annotations + `},"spec":{"size":0}}}`
		}
		object := `{"kind":"Strict","apiVersion":"v1","metadata":{"namespace":"default","name":"a","uid":"1",` +
			`"resourceVersion":"3"},"spec":{"size":1}}`
		asked := 0
		serve := roundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			stream := `{"type":"ADDED","object":` + object + `}` +
				bookmark("5", `,"annotations":{"k8s.io/initial-events-end":"true"}`) + bookmark("7", "")
			return &http.Response{StatusCode: 200, Request: r, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(
				strings.NewReader(stream), never{r.Context()}))}, nil
		})
		client, err := restOver[*strict](&rest.Config{Host: "http://server"}, &http.Client{Transport: serve},
			podsResource, "Strict")
		require.NoError(t, err)
		inf, err := New[*strict](client, Options[*strict]{})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		require.Equal(t, 1, asked)
		require.Equal(t, "7", inf.ResourceVersion(metav1.NamespaceAll))
		require.Equal(t, 1, inf.Len())
	})
}
