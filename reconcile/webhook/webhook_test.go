package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

var (
	v1     = schema.GroupVersion{Group: "webhook.thermostat.example", Version: "v1"}
	v1beta = schema.GroupVersion{Group: "webhook.thermostat.example", Version: "v1beta1"}
	v1old  = schema.GroupVersion{Group: "webhook.thermostat.example", Version: "v1alpha1"}
)

// Gadget is the kind of these tests. Its versions differ in the field that has the size.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Size  int            `json:"size,omitempty"`
		Parts []string       `json:"parts,omitempty"`
		More  map[string]int `json:"more,omitempty"`
	} `json:"spec"`
}

func (g *Gadget) DeepCopyObject() runtime.Object {
	c := *g
	c.Labels, c.Annotations = maps.Clone(g.Labels), maps.Clone(g.Annotations)
	return &c
}

// older is a Gadget of another version. Its name is that of the kind.
type older struct{ Gadget }

func review(t *testing.T, operation admissionv1.Operation, object, old string) []byte {
	r := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "1", Operation: operation, Name: "a", Namespace: "default",
			Kind:   metav1.GroupVersionKind{Group: v1.Group, Version: "v1", Kind: "Gadget"},
			DryRun: new(true), Object: runtime.RawExtension{Raw: []byte(object)}},
	}
	if old != "" {
		r.Request.OldObject.Raw = []byte(old)
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	return data
}

// call sends a body to a Handler.
func call(t *testing.T, h http.Handler, query string, body []byte) *httptest.ResponseRecorder {
	quiet := klog.NewContext(t.Context(), klog.Logger{})
	req := httptest.NewRequestWithContext(quiet, http.MethodPost, "/"+query, strings.NewReader(string(body)))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// answer is the response of a Handler that has judged.
func answer(t *testing.T, h http.Handler, body []byte) *admissionv1.AdmissionResponse {
	w := call(t, h, "", body)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var r admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
	require.Equal(t, "AdmissionReview", r.Kind)
	require.EqualValues(t, "1", r.Response.UID)
	return r.Response
}

// TestDefault is about the patch: it has what the function changed, and leaves alone what the type does not have.
func TestDefault(t *testing.T) {
	h := webhook.Default(v1, func(_ context.Context, a *webhook.Admission[*Gadget]) error {
		require.True(t, a.DryRun())
		if a.Object.Spec.Size == 0 {
			a.Object.Spec.Size = 3
			a.Warn("the size is %d", 3)
		}
		if a.Object.Labels == nil {
			a.Object.Labels = map[string]string{}
		}
		a.Object.Labels["a/b~c"] = "x"
		delete(a.Object.Spec.More, "gone")
		return nil
	})
	for object, want := range map[string]string{
		`{"metadata":{"name":"a"},"spec":{}}`: `{"metadata":{"name":"a","labels":{"a/b~c":"x"}},"spec":{"size":3}}`,
		`{"metadata":{"name":"a"}}`:           `{"metadata":{"name":"a","labels":{"a/b~c":"x"}},"spec":{"size":3}}`,
		`{"metadata":{"name":"a","labels":{"l":"1"}},
			"spec":{"size":9,"unknown":{"x":1},"more":{"gone":1,"stays":2}}}`: `
			{"metadata":{"name":"a","labels":{"l":"1","a/b~c":"x"}},
				"spec":{"size":9,"unknown":{"x":1},"more":{"stays":2}}}`,
	} {
		response := answer(t, h, review(t, admissionv1.Create, object, ""))
		require.True(t, response.Allowed)
		require.Equal(t, admissionv1.PatchTypeJSONPatch, *response.PatchType)
		patch, err := jsonpatch.DecodePatch(response.Patch)
		require.NoError(t, err)
		patched, err := patch.Apply([]byte(object))
		require.NoError(t, err, string(response.Patch))
		require.JSONEq(t, want, string(patched))
		again := answer(t, h, review(t, admissionv1.Update, string(patched), object))
		require.Nil(t, again.Patch, "what is set is left alone")
		require.Nil(t, again.PatchType)
	}
	require.Equal(t, []string{"the size is 3"}, answer(t, h, review(t, admissionv1.Create, `{"metadata":{}}`,
		"")).Warnings)
	require.Nil(t, answer(t, h, review(t, admissionv1.Delete, "null", `{"metadata":{}}`)).Patch)
}

// TestValidate is about refusals.
func TestValidate(t *testing.T) {
	h := webhook.Validate(v1, func(_ context.Context, a *webhook.Admission[*Gadget]) (field.ErrorList, error) {
		size := field.NewPath("spec", "size")
		switch {
		case a.Request.Operation == admissionv1.Delete:
			require.Nil(t, a.Object)
			return nil, apierrors.NewForbidden(v1.WithResource("gadgets").GroupResource(), a.Old.Name,
				errors.New("it is in use"))
		case a.Old != nil && a.Old.Spec.Size > a.Object.Spec.Size:
			a.Warn("shrinking loses data")
			return field.ErrorList{field.Invalid(size, a.Object.Spec.Size, "cannot shrink"),
				field.Required(field.NewPath("spec", "parts"), "")}, nil
		case a.Object.Spec.Size == 13:
			return nil, apierrors.NewInternalError(errors.New("no opinion"))
		}
		return nil, nil
	})
	require.True(t, answer(t, h, review(t, admissionv1.Create, `{"spec":{"size":1}}`, "")).Allowed)

	refused := answer(t, h, review(t, admissionv1.Update, `{"spec":{"size":1}}`, `{"spec":{"size":2}}`))
	require.False(t, refused.Allowed)
	require.EqualValues(t, http.StatusUnprocessableEntity, refused.Result.Code)
	require.Equal(t, metav1.StatusReasonInvalid, refused.Result.Reason)
	require.Len(t, refused.Result.Details.Causes, 2)
	require.Equal(t, "spec.size", refused.Result.Details.Causes[0].Field)
	require.Equal(t, []string{"shrinking loses data"}, refused.Warnings)

	forbidden := answer(t, h, review(t, admissionv1.Delete, "null", `{"metadata":{"name":"a"}}`))
	require.False(t, forbidden.Allowed)
	require.EqualValues(t, http.StatusForbidden, forbidden.Result.Code)

	unjudged := call(t, h, "", review(t, admissionv1.Create, `{"spec":{"size":13}}`, ""))
	require.Equal(t, http.StatusInternalServerError, unjudged.Code, "the failurePolicy decides")
	require.Contains(t, unjudged.Body.String(), "no opinion")
}

// TestAnObjectThatDoesNotFit its Go type is stored, and can be repaired and deleted.
func TestAnObjectThatDoesNotFit(t *testing.T) {
	calls := 0
	validate := webhook.Validate(v1, func(_ context.Context, a *webhook.Admission[*Gadget]) (field.ErrorList, error) {
		calls++
		require.Nil(t, a.Old)
		require.ErrorContains(t, a.OldInvalid, "cannot unmarshal string")
		return nil, nil
	}).AllowOldInvalid()
	fill := webhook.Default(v1, func(_ context.Context, a *webhook.Admission[*Gadget]) error {
		calls++
		require.Nil(t, a.Old)
		require.Error(t, a.OldInvalid)
		a.Object.Spec.Size++
		return nil
	})
	const stored = `{"metadata":{"finalizers":["a","b"]},"spec":{"size":"x"}}`
	for _, h := range []*webhook.Handler{validate, fill} {
		repaired := answer(t, h, review(t, admissionv1.Update, `{"spec":{"size":1}}`, stored))
		require.True(t, repaired.Allowed)
		require.Equal(t, h == fill, repaired.Patch != nil)
		require.True(t, answer(t, h, review(t, admissionv1.Delete, "null", stored)).Allowed)
	}
	require.Equal(t, 3, calls, "Default makes no call for a deletion")
	compares := webhook.Validate(v1, func(context.Context, *webhook.Admission[*Gadget]) (field.ErrorList, error) {
		t.Error("the function might take a nil Old for a creation")
		return nil, nil
	})
	for operation, object := range map[admissionv1.Operation]string{admissionv1.Update: `{"spec":{"size":1}}`,
		admissionv1.Delete: "null"} {
		w := call(t, compares, "", review(t, operation, object, stored))
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), "what is stored does not fit the Go type")
	}

	leaving := strings.Replace(stored, `{"f`, `{"deletionTimestamp":"2026-01-01T00:00:00Z","f`, 1)
	for _, test := range []struct {
		what, object, old string
		code              int
	}{
		{"a finalizer less", strings.Replace(leaving, `"a",`, "", 1), leaving, 200},
		{"no finalizer", strings.Replace(leaving, `,"finalizers":["a","b"]`, `,"managedFields":[{}]`, 1), leaving, 200},
		{"at another version", strings.Replace(leaving, `"f`, `"resourceVersion":"7","f`, 1), leaving, 200},
		{"another finalizer", strings.Replace(leaving, `"a"`, `"c"`, 1), leaving, 400},
		{"another label", strings.Replace(leaving, `"f`, `"labels":{"a":"b"},"f`, 1), leaving, 400},
		{"another spec", strings.Replace(leaving, `"x"`, `"y"`, 1), leaving, 400},
		{"not being deleted", strings.Replace(stored, `"a",`, "", 1), stored, 400},
		{"only says so", leaving, stored, 400},
	} {
		for _, h := range []*webhook.Handler{validate, fill} {
			w := call(t, h, "", review(t, admissionv1.Update, test.object, test.old))
			require.Equal(t, test.code, w.Code, "%s: %s", test.what, w.Body)
		}
	}
	require.Equal(t, 3, calls)
}

// TestCallsThatCannotBeJudged: none of them is answered with yes.
func TestCallsThatCannotBeJudged(t *testing.T) {
	panics := webhook.Validate(v1, func(context.Context, *webhook.Admission[*Gadget]) (field.ErrorList, error) {
		panic("a Secret")
	})
	ok := webhook.Validate(v1, func(context.Context, *webhook.Admission[*Gadget]) (field.ErrorList, error) {
		return nil, nil
	})
	good := review(t, admissionv1.Create, `{}`, "")
	older := strings.Replace(string(good), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1)
	other := strings.Replace(string(good), `"version":"v1"`, `"version":"v2"`, 1)
	for name, test := range map[string]struct {
		h    *webhook.Handler
		body string
		code int
	}{
		"a panic":        {panics, string(good), 500},
		"no JSON":        {ok, "{", 400},
		"another review": {ok, older, 400},
		"no request":     {ok, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400},
		"another kind":   {ok, other, 400},
		"another type":   {ok, string(review(t, admissionv1.Create, `{"spec":{"size":"x"}}`, "")), 400},
		"a large body":   {ok, strings.Repeat(" ", webhook.MaxBody+1), 413},
	} {
		w := call(t, test.h, "", []byte(test.body))
		require.Equal(t, test.code, w.Code, name)
		require.NotContains(t, w.Body.String(), "a Secret")
		require.NotContains(t, w.Body.String(), "goroutine")
	}
	w := httptest.NewRecorder()
	ok.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	w = httptest.NewRecorder()
	ok.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(good))))
	require.Equal(t, http.StatusUnsupportedMediaType, w.Code)
}

// TestDeadline: the ctx of a function ends when the API server stops waiting.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := webhook.Default(v1, func(ctx context.Context, _ *webhook.Admission[*Gadget]) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for query, want := range map[string]time.Duration{"?timeout=7s": 7 * time.Second, "": 30 * time.Second,
			"?timeout=2h": 30 * time.Second} {
			began := time.Now()
			require.Equal(t, http.StatusInternalServerError,
				call(t, h, query, review(t, admissionv1.Create, "{}", "")).Code)
			require.Equal(t, want, time.Since(began))
		}
	})
}

// conversion sends a ConversionReview and returns the objects, or the message of a failure.
func conversion(t *testing.T, h http.Handler, desired schema.GroupVersion, objects ...string) (converted []string,
	failure string) {
	w := call(t, h, "", fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",
		"request":{"uid":"7","desiredAPIVersion":%q,"objects":[%s]}}`, desired, strings.Join(objects, ",")))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var r struct {
		Response struct {
			UID              string
			ConvertedObjects []json.RawMessage
			Result           metav1.Status
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
	require.Equal(t, "7", r.Response.UID)
	for _, o := range r.Response.ConvertedObjects {
		converted = append(converted, string(o))
	}
	if r.Response.Result.Status != metav1.StatusSuccess {
		require.Empty(t, converted)
		return nil, r.Response.Result.Message
	}
	return converted, ""
}

// grow makes a Conversion that adds to the size.
func grow(from, to schema.GroupVersion, by int) webhook.Conversion {
	return webhook.Convert(from, to, func(g *Gadget) (*Gadget, error) {
		switch g.Spec.Size {
		case 13:
			return nil, errors.New("13 has no place in this version")
		case 14:
			return nil, nil
		case 15:
			panic("a Secret")
		}
		result := &Gadget{}
		result.Spec.Size = g.Spec.Size + by
		if g.Name == "labelled" {
			result.ObjectMeta = *g.ObjectMeta.DeepCopy()
			result.Name, result.UID, result.Finalizers = "other", "other", nil
			result.Labels["converted"] = "yes"
			delete(result.Annotations, "gone")
		}
		return result, nil
	})
}

// TestConversions goes by steps where no function leads straight to a version.
func TestConversions(t *testing.T) {
	h := webhook.Conversions(grow(v1old, v1beta, 10), grow(v1beta, v1, 100), grow(v1, v1beta, -100),
		grow(v1beta, v1old, -10))
	object := func(gv schema.GroupVersion, name string, size int) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"Gadget","metadata":{"name":%q,"uid":"u","labels":{"l":"1"},
			"annotations":{"gone":"1","a":"2"},"finalizers":["f"],"generation":12345678901234567},"spec":{"size":%d}}`,
			gv, name, size)
	}
	got, failure := conversion(t, h, v1, object(v1old, "a", 1), object(v1beta, "b", 2), object(v1, "c", 3))
	require.Empty(t, failure)
	require.Len(t, got, 3)
	require.JSONEq(t, object(v1, "a", 111), got[0])
	require.JSONEq(t, object(v1, "b", 102), got[1])
	require.JSONEq(t, object(v1, "c", 3), got[2])

	got, _ = conversion(t, h, v1, object(v1beta, "labelled", 1))
	require.JSONEq(t, `{"apiVersion":"webhook.thermostat.example/v1","kind":"Gadget","metadata":{"name":"labelled",
		"uid":"u","labels":{"l":"1","converted":"yes"},"annotations":{"a":"2"},"finalizers":["f"],
		"generation":12345678901234567},"spec":{"size":101}}`, got[0])

	_, failure = conversion(t, h, v1, object(v1old, "a", 1), object(v1old, "bad", 13))
	require.Equal(t, "Gadget /bad cannot be converted from v1alpha1 to v1beta1: 13 has no place in this version",
		failure)
	_, failure = conversion(t, h, v1, object(v1old, "nothing", 14))
	require.Equal(t, "Gadget /nothing cannot be converted from v1alpha1 to v1beta1: the conversion has returned nil",
		failure)
	_, failure = conversion(t, h, v1, object(v1old, "panics", 15))
	require.Equal(t, "Gadget /panics cannot be converted from v1alpha1 to v1beta1: panic of type string", failure)
	_, failure = conversion(t, h, schema.GroupVersion{Group: v1.Group, Version: "v9"}, object(v1old, "a", 1))
	require.Contains(t, failure, "there is no conversion")
}

// TestMistakes are reported by New, all at once.
func TestMistakes(t *testing.T) {
	_, err := webhook.New(webhook.Options{})
	require.ErrorContains(t, err, "Options.Handlers is empty")
	require.ErrorContains(t, err, "Options.Certificates and Options.TLS are nil")
	_, err = webhook.New(webhook.Options{Certificates: &webhook.Certificates{
		Lifetimes: webhook.Lifetimes{CA: time.Hour, Leaf: time.Hour},
		Hosts:     []string{"", ".", "good.svc", "*.good.svc", "::1", "10.0.0.1"}}, StopGrace: -1,
		Handlers: map[string]*webhook.Handler{
			"convert": webhook.Conversions(),
			"/none":   nil,
			"/readyz": webhook.Conversions(grow(v1old, v1, 1), grow(v1, v1old, -1)),
			"/oneway": webhook.Conversions(grow(v1old, v1, 1)),
			"/self":   webhook.Conversions(grow(v1, v1, 1), grow(v1, v1old, 1), grow(v1, v1old, 1)),
			"/kinds": webhook.Conversions(webhook.Convert(v1, v1old,
				func(*Gadget) (*older, error) { return nil, nil })),
		}})
	for _, text := range []string{`["convert"]: a path begins with a slash`, `["/none"]`, "REST is nil", "Secret is",
		`Hosts has ""`, `Hosts has "."`, "the path is for probes",
		"CA has to be at least six times the Leaf", "no API server would trust the CA",
		"StopGrace is -1ns",
		"no conversion leads from webhook.thermostat.example/v1, Kind=Gadget to webhook.thermostat.example/v1alpha1",
		"is converted to itself", "there are two conversions", "cannot become",
	} {
		require.ErrorContains(t, err, text)
	}
	for _, good := range []string{"good.svc", "::1", "10.0.0.1"} {
		require.NotContains(t, err.Error(), good)
	}
	_, err = webhook.New(webhook.Options{Certificates: &webhook.Certificates{}})
	require.ErrorContains(t, err, "Hosts is empty")
}
