package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// overHTTP serves the pods of an API in memory as an API server does, with no socket in between, so that real clients
// can be used in virtual time.
type overHTTP struct {
	api      *podAPI
	protobuf bool
	// damage, if set, may change an object's encoded form on its way.
	damage func(name string, encoded []byte) []byte
}

func (s *overHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	opts := optionsOf(r.URL.Query())
	// The metadata client asks for another form of the same objects.
	form := func(o runtime.Object) runtime.Object { return o }
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		form = metadataOf
	}
	if r.URL.Query().Get("watch") == "" {
		list, err := s.api.List(r.Context(), opts)
		if err != nil {
			return refusal(r, err)
		}
		list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
		if s.protobuf {
			return answerBytes(r, http.StatusOK, runtime.ContentTypeProtobuf, wiretest.ProtoList(list, s.damage)), nil
		}
		if s.damage != nil {
			return answerBytes(r, http.StatusOK, runtime.ContentTypeJSON, wiretest.JSONList(list, s.damage)), nil
		}
		return answer(r, http.StatusOK, form(list)), nil
	}
	w, err := s.api.Watch(r.Context(), opts)
	if err != nil {
		return refusal(r, err)
	}
	out, in := io.Pipe()
	context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) })
	go func() {
		defer in.Close()
		defer w.Stop()
		for {
			select {
			case <-r.Context().Done():
				return
			case e, ok := <-w.ResultChan():
				if !ok {
					return
				}
				frame := wiretest.JSONFrame(e.Type, form(withKind(e.Object)), s.damage)
				if s.protobuf {
					frame = wiretest.ProtoFrame(e.Type, withKind(e.Object), s.damage)
				}
				if _, err := in.Write(frame); err != nil {
					return
				}
			}
		}
	}()
	contentType := runtime.ContentTypeJSON
	if s.protobuf {
		contentType = runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: out,
		Header: http.Header{"Content-Type": {contentType}}}, nil
}

func optionsOf(q url.Values) metav1.ListOptions {
	opts := metav1.ListOptions{ResourceVersion: q.Get("resourceVersion"), Continue: q.Get("continue")}
	opts.Limit, _ = strconv.ParseInt(q.Get("limit"), 10, 64)
	if streamed := q.Get("sendInitialEvents") == "true"; streamed {
		opts.SendInitialEvents = &streamed
	}
	return opts
}

func answer(r *http.Request, code int, o runtime.Object) *http.Response {
	body, _ := json.Marshal(o)
	return answerBytes(r, code, runtime.ContentTypeJSON, body)
}

func answerBytes(r *http.Request, code int, contentType string, body []byte) *http.Response {
	return &http.Response{StatusCode: code, Request: r, Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{"Content-Type": {contentType}}}
}

func refusal(r *http.Request, err error) (*http.Response, error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return nil, err
	}
	s := status.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return answer(r, int(s.Code), &s), nil
}

func withKind(o runtime.Object) runtime.Object {
	if bookmark, ok := o.(*metav1.PartialObjectMetadata); ok {
		o = &corev1.Pod{ObjectMeta: bookmark.ObjectMeta}
	}
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return o
}

func metadataOf(o runtime.Object) runtime.Object {
	v1 := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind} }
	switch o := o.(type) {
	case *corev1.PodList:
		list := &metav1.PartialObjectMetadataList{TypeMeta: v1("PartialObjectMetadataList"), ListMeta: o.ListMeta}
		for i := range o.Items {
			list.Items = append(list.Items, *metadataOf(&o.Items[i]).(*metav1.PartialObjectMetadata))
		}
		return list
	case *corev1.Pod:
		return &metav1.PartialObjectMetadata{TypeMeta: v1("PartialObjectMetadata"), ObjectMeta: o.ObjectMeta}
	}
	return o
}

var podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// followsOverHTTP runs an informer on a real client that newClient makes, streaming and paging.
func followsOverHTTP[T Object, L runtime.Object](t *testing.T, protobuf bool,
	newClient func(*rest.Config, *http.Client) (Client[L], error)) {
	t.Helper()
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newPodAPI()
				for i := range 5 {
					o := pod(strconv.Itoa(i), "app")
					o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
					api.Create(o)
				}
				client, err := newClient(&rest.Config{Host: "http://server", QPS: -1},
					&http.Client{Transport: &overHTTP{api: api, protobuf: protobuf}})
				require.NoError(t, err)
				inf, err := New[T](client, Options[T]{DisableWatchList: !streaming, PageSize: 2})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- inf.Run(ctx) }()
				synctest.Wait()
				require.True(t, inf.HasSynced(), "%s", inf.Health())
				require.Equal(t, 5, inf.Len())

				api.Delete("default", "0")
				api.Update("default", "1", func(p *corev1.Pod) { p.Labels["app"] = "changed" })
				time.Sleep(time.Second)
				require.Equal(t, 4, inf.Len())
				changed, ok := inf.Get(Key{Namespace: "default", Name: "1"})
				require.True(t, ok)
				require.Equal(t, "changed", changed.GetLabels()["app"])

				api.Cut()
				api.Delete("default", "1")
				api.Compact()
				time.Sleep(time.Minute)
				require.Equal(t, 3, inf.Len())
				require.Equal(t, Live, inf.Health().State, "%v", inf.Health())
				live, ok, err := inf.Live(t.Context(), Key{Namespace: "default", Name: "2"})
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, "2", live.GetName())
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}

func TestTypedClients(t *testing.T) {
	followsOverHTTP[*corev1.Pod](t, false,
		func(config *rest.Config, over *http.Client) (Client[*corev1.PodList], error) {
			c, err := typedcorev1.NewForConfigAndClient(config, over)
			if err != nil {
				return nil, err
			}
			return c.Pods(metav1.NamespaceAll), nil
		})
}

func TestDynamicClients(t *testing.T) {
	followsOverHTTP[*unstructured.Unstructured](t, false,
		func(config *rest.Config, over *http.Client) (Client[*unstructured.UnstructuredList], error) {
			c, err := dynamic.NewForConfigAndClient(config, over)
			if err != nil {
				return nil, err
			}
			return c.Resource(podsResource), nil
		})
}

func TestMetadataClients(t *testing.T) {
	followsOverHTTP[*metav1.PartialObjectMetadata](t, false,
		func(config *rest.Config, over *http.Client) (Client[*metav1.PartialObjectMetadataList], error) {
			c, err := metadata.NewForConfigAndClient(config, over)
			if err != nil {
				return nil, err
			}
			return c.Resource(podsResource), nil
		})
}

// Decoders quote what they could not decode.
func TestWhatCannotBeDecodedIsNotQuoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, body := range map[string]string{
			"no kind":   `{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"swordfish"}}]}`,
			"not JSON":  `{"swordfish`,
			"no object": `"swordfish"`,
			"wrong type": `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},` +
				`"items":[{"metadata":{"name":{"swordfish":1}}}]}`,
			"watch event": `{"type":"ADDED","object":{"metadata":{"name":"swordfish","resourceVersion":"5"}}}` + "\n",
			"odd event":   `{"type":"ADDED","object":"swordfish"}` + "\n",
		} {
			serve := roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(strings.NewReader(body)),
					Header: http.Header{"Content-Type": {"application/json"}}}, nil
			})
			config := &rest.Config{Host: "http://server", QPS: -1}
			dynamicClient, err := dynamic.NewForConfigAndClient(config, &http.Client{Transport: serve})
			require.NoError(t, err)
			inf, err := New[*unstructured.Unstructured](dynamicClient.Resource(podsResource),
				Options[*unstructured.Unstructured]{
					DisableWatchList: !strings.Contains(name, "event"),
				})
			require.NoError(t, err)
			log := &lines{}
			ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.New(log)), time.Minute)
			defer cancel()
			require.NoError(t, inf.Run(ctx))
			h := inf.Health()
			require.NoError(t, discreetly("swordfish", log.all(), h), name)
		}
	})
}

// Nor does the error of a typed client, which may come from any method of a type.
func TestWhatATypedClientCannotDecodeIsNotQuoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, item := range map[string]string{
			"a time":         `{"metadata":{"name":"a","creationTimestamp":"swordfish"}}`,
			"another type":   `{"metadata":{"name":"a"},"spec":{"priority":"swordfish"}}`,
			"out of range":   `{"metadata":{"name":"a"},"spec":{"priority":123123123123123123}}`,
			"not a quantity": `{"metadata":{"name":"a"},"spec":{"overhead":{"cpu":"swordfish"}}}`,
			"cut short":      `{"metadata":{"name":"swordfish"`,
		} {
			serve := roundTripper(func(r *http.Request) (*http.Response, error) {
				body := fmt.Appendf(nil, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},`+
					`"items":[%s]}`, item)
				return answerBytes(r, http.StatusOK, runtime.ContentTypeJSON, body), nil
			})
			core, err := typedcorev1.NewForConfigAndClient(&rest.Config{Host: "http://server", QPS: -1},
				&http.Client{Transport: serve})
			require.NoError(t, err)
			inf, err := New[*corev1.Pod](core.Pods(metav1.NamespaceAll), Options[*corev1.Pod]{DisableWatchList: true})
			require.NoError(t, err)
			log := &lines{}
			ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.New(log)), time.Minute)
			require.NoError(t, inf.Run(ctx))
			cancel()
			h := inf.Health()
			require.ErrorIs(t, h.LastError, wire.ErrUndecodable, name)
			for _, canary := range []string{"swordfish", "123123"} {
				require.NoError(t, discreetly(canary, log.all(), h), name)
			}
		}
	})
}

// What is wrong with the way to the server is said as it is, and an error of somebody's own client is found though it
// is not shown.
func TestErrorsOfAListAreKept(t *testing.T) {
	own := errors.New("swordfish")
	for name, err := range map[string]error{
		"refused": errForbidden, "unreachable": &url.Error{Op: "Get", URL: "http://server",
			Err: errors.New("connection refused")},
		"reset": fmt.Errorf("reading: %w", &net.OpError{Op: "read", Err: errors.New("connection reset")}), "own": own,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, err }
					run(t, inf)
					synctest.Wait()
					require.ErrorIs(t, inf.Health().LastError, err)
					if err == own {
						require.EqualError(t, inf.Health().LastError,
							"list: "+wire.ErrUndecodable.Error()+" (*errors.errorString)")
					} else {
						require.ErrorContains(t, inf.Health().LastError, err.Error())
					}
					healed(t, p, inf, told)
				})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (fn roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return fn(r) }

// pointers lists its items as pointers, as a few hand-written types do.
type pointers struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*corev1.Pod
}

func (l *pointers) DeepCopyObject() runtime.Object { return l }

type pointerClient struct{ api *podAPI }

func (c pointerClient) List(ctx context.Context, opts metav1.ListOptions) (*pointers, error) {
	list, err := c.api.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	l := &pointers{ListMeta: list.ListMeta}
	for i := range list.Items {
		l.Items = append(l.Items, &list.Items[i])
	}
	return l, nil
}

func (c pointerClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.api.Watch(ctx, opts)
}

func TestListsOfPointers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf, err := New[*corev1.Pod](pointerClient{api}, Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		require.Equal(t, 1, inf.Len())
	})
	synctest.Test(t, func(t *testing.T) {
		list := &pointers{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []*corev1.Pod{nil}}
		inf, err := New[*corev1.Pod](anyList{list}, Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		require.ErrorContains(t, inf.Health().LastBadObject, "no object")
	})
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	var none *podAPI
	for name, c := range map[string]struct {
		make func() error
		text string
	}{
		"nil client": {func() error {
			_, err := New[*corev1.Pod](Client[*corev1.PodList](nil), Options[*corev1.Pod]{Name: "pods"})
			return err
		}, "informer pods: the client is nil"},
		"nil pointer": {func() error {
			_, err := New[*corev1.Pod](none, Options[*corev1.Pod]{})
			return err
		}, "informer *v1.Pod: the client is nil"},
		"another type": {func() error {
			_, err := New[*corev1.Secret](newPodAPI(), Options[*corev1.Secret]{})
			return err
		}, "the client lists *v1.Pod, but the informer was asked to hold *v1.Secret"},
		"another type, pointers": {func() error {
			_, err := New[*corev1.Secret](pointerClient{}, Options[*corev1.Secret]{})
			return err
		}, "the client lists *v1.Pod, but the informer was asked to hold *v1.Secret"},
		"page size": {func() error {
			_, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{PageSize: -1})
			return err
		}, "Options.PageSize is -1"},
		"grace": {func() error {
			_, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{StopGrace: -time.Second})
			return err
		}, "Options.StopGrace is -1s"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, c.make(), c.text) })
	}
}

// Whoever has made five mistakes is told of five at once.
func TestNewNamesEverythingThatIsWrong(t *testing.T) {
	_, err := Project[*corev1.Pod, string]((*Resource[*corev1.Pod])(nil), nil, Options[*corev1.Pod]{
		Name: "pods", LabelSelector: labels.Nothing(), FieldSelector: fields.Nothing(), PageSize: -1,
		MaxStaleness: time.Second, VerifyEvery: time.Second, StopGrace: -1,
	})
	for _, part := range []string{
		"informer pods: ", "Options.PageSize is -1", "Options.MaxStaleness is 1s",
		"Options.VerifyEvery is 1s", "Options.StopGrace is -1ns",
		"Project: the function is nil", "the label selector selects nothing", "the field selector selects nothing",
		"the client is nil",
	} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorIs(t, err, ErrScope)
	_, err = NewNamespaced[*corev1.Pod](func(string) Client[*corev1.PodList] { return nil }, []string{"one", "two"},
		Options[*corev1.Pod]{PageSize: -1})
	require.EqualError(t, err, "informer *v1.Pod: Options.PageSize is -1; it is a number of objects, or zero for "+
		"the default\n"+
		"namespace one: the client is nil", "one namespace is example enough")
}

// A client whose list type says nothing is found out at the first object: each is rejected by name.
func TestObjectsOfAnotherTypeAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.Pod{*pod("a")}}
		inf, err := New[*corev1.Secret](anyList{list}, Options[*corev1.Secret]{DisableWatchList: true})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- inf.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, 1, inf.Health().Rejected)
		require.ErrorContains(t, inf.Health().LastBadObject, "*v1.Pod")
		cancel()
		require.NoError(t, <-done)
	})
}
