package reconciletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// format is how an answer is to be written: in which encoding, and whether as the object or as its metadata only.
type format struct {
	runtime.SerializerInfo
	metadataOnly bool
}

// accepted chooses the first format of an Accept header that the server can write a resource in. Custom resources have
// no protobuf encoding, but their metadata has.
func (s *Server) accepted(header string, r *Resource) (format, error) {
	if header == "" {
		header = runtime.ContentTypeJSON
	}
	unknown := ""
	for clause := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		if media == "*/*" || media == "application/*" {
			media = runtime.ContentTypeJSON
		}
		metadataOnly := false
		switch as := params["as"]; {
		case as == "":
		case (as == "PartialObjectMetadata" || as == "PartialObjectMetadataList") && params["g"] == metav1.GroupName &&
			params["v"] == "v1":
			metadataOnly = true
		default:
			unknown = as // kubectl would like a Table, and takes the objects
			continue
		}
		if media != runtime.ContentTypeJSON && media != runtime.ContentTypeProtobuf {
			continue
		}
		if media == runtime.ContentTypeProtobuf && r != nil && r.custom() && !metadataOnly {
			continue
		}
		info, _ := runtime.SerializerInfoForMediaType(codecsOf(s, r).SupportedMediaTypes(), media)
		return format{info, metadataOnly}, nil
	}
	if unknown != "" {
		return format{}, notModelled("answers as %s", unknown)
	}
	return format{}, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: application/json, application/vnd.kubernetes.protobuf",
	}}
}

// encode writes an answer. It does not change it.
func (f format) encode(o runtime.Object) ([]byte, error) {
	o, err := f.project(o)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if u, ok := o.(runtime.Unstructured); ok {
		err = unstructured.UnstructuredJSONScheme.Encode(u, &b)
	} else {
		err = f.Serializer.Encode(o, &b)
	}
	return b.Bytes(), err
}

// project returns an object or a list as it is asked for.
func (f format) project(o runtime.Object) (runtime.Object, error) {
	o = asRead(o)
	if _, ok := o.(*metav1.Status); ok || !f.metadataOnly {
		return o, nil
	}
	metadata := func(o runtime.Object) (*metav1.PartialObjectMetadata, error) {
		m, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		p := meta.AsPartialObjectMetadata(m)
		p.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		return p, nil
	}
	if !meta.IsListType(o) {
		return metadata(o)
	}
	from, err := meta.ListAccessor(o)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
	list.ResourceVersion, list.Continue, list.RemainingItemCount = from.GetResourceVersion(), from.GetContinue(),
		from.GetRemainingItemCount()
	return list, meta.EachListItem(o, func(o runtime.Object) error {
		p, err := metadata(o)
		if err == nil {
			list.Items = append(list.Items, *p)
		}
		return err
	})
}

// readBody reads the body of a request and says in which of the encodings it is. It has none if it is empty.
func (s *Server) readBody(req *http.Request) ([]byte, string, error) {
	if req.Body == nil {
		return nil, "", nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, "", err
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		media = runtime.ContentTypeJSON
	}
	return body, media, nil
}

func unsupportedMediaType(accepted ...string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s",
			strings.Join(accepted, ", ")),
	}}
}

// onlyJSON refuses another encoding of a custom resource, as a real server does, which reads definitions in protobuf.
func onlyJSON(r *Resource, media string) error {
	if media == runtime.ContentTypeProtobuf && r.GroupVersionResource == definitions {
		return notModelled("a %s in protobuf, as its typed client writes it: give the client a config with the "+
			"ContentType %s", r.Kind, runtime.ContentTypeJSON)
	}
	return unsupportedMediaType(runtime.ContentTypeJSON)
}

// decode reads an object of the call's resource. What is wrong with its fields is judged by [call.strictly], which asks
// refuse for the error.
func (s *Server) decode(c *call, media string, body []byte, refuse func(error) error) (object, error) {
	o, found, err := s.read(c.resource, media, body)
	if misfit, ok := errors.AsType[*misfitError](err); ok {
		return nil, c.resource.cannotHandle(misfit.error)
	}
	if err != nil {
		return nil, err
	}
	return o, c.strictly(found, refuse)
}

// read reads an object of a resource; found is what is wrong with its fields: unknown ones, and those that are there
// twice.
func (s *Server) read(r *Resource, media string, body []byte) (o object, found []error, err error) {
	o = r.make()
	want := r.gvk()
	if r.custom() {
		if media != runtime.ContentTypeJSON {
			return nil, nil, onlyJSON(r, media)
		}
		u := o.(*unstructured.Unstructured)
		if err := json.Unmarshal(body, u); err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		if found, err = kjson.UnmarshalStrict(body, &map[string]any{}); err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		if err := sameKind(u.GroupVersionKind(), want); err != nil {
			return nil, nil, err
		}
		unknown, err := r.schema.take(u)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		for _, name := range unknown {
			found = append(found, fmt.Errorf("unknown field %q", name))
		}
		return u, found, nil
	}
	info, ok := runtime.SerializerInfoForMediaType(codecsOf(s, r).SupportedMediaTypes(), media)
	if !ok || media != runtime.ContentTypeJSON && media != runtime.ContentTypeProtobuf {
		return nil, nil, unsupportedMediaType(runtime.ContentTypeJSON, runtime.ContentTypeProtobuf)
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	serializer := info.Serializer
	if info.StrictSerializer != nil {
		serializer = info.StrictSerializer
	}
	decoded, got, err := serializer.Decode(body, &want, o)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		found, err = strict.Errors(), nil
	}
	if err != nil && got != nil && *got == want {
		return nil, nil, &misfitError{err}
	}
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if err := sameKind(*got, want); err != nil {
		return nil, nil, err
	}
	o, ok = decoded.(object)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is not an object", decoded))
	}
	o.GetObjectKind().SetGroupVersionKind(want)
	return o, found, nil
}

// misfitError says that an object is of the right kind, and one of its fields not of the right type.
type misfitError struct{ error }

// take fills in the defaults of what was sent, and removes what is unknown. It returns the paths, and an error if
// metadata cannot be read. nil: nothing is known of the fields.
func (s *structure) take(u *unstructured.Unstructured) (unknown []string, err error) {
	if unknown, err = pruneMetadata(u); err != nil || s == nil {
		return unknown, err
	}
	s.applyDefaults(u.Object)
	if err := s.coerce(u.Object); err != nil {
		return nil, err
	}
	pruned, inEmbedded := s.prune(u.Object)
	unknown = append(unknown, pruned...)
	slices.Sort(unknown)
	return append(unknown, inEmbedded...), nil
}

// pruneMetadata removes what is no field of the metadata that all kinds share, and returns the paths. It also removes
// lists and maps that are empty.
func pruneMetadata(u *unstructured.Unstructured) (unknown []string, err error) {
	metadata, there := u.Object["metadata"]
	if !there {
		return nil, nil
	}
	names, pruned, err := prunedMetadata(metadata)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		unknown = append(unknown, "metadata."+name)
	}
	u.Object["metadata"] = pruned
	return unknown, nil
}

func sameKind(got, want schema.GroupVersionKind) error {
	switch {
	case got.GroupVersion() != want.GroupVersion():
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(),
			want.GroupVersion()))
	case got.Kind != want.Kind:
		return apierrors.NewBadRequest(fmt.Sprintf("%s in the data is not %s", got.Kind, want.Kind))
	}
	return nil
}

// answer makes an HTTP response of a body that is ready.
func answer(code int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Content-Type": {contentType}}, Body: body, ContentLength: -1,
	}
}

// answerObject makes an HTTP response of an object, a list or a Status.
func answerObject(code int, f format, o runtime.Object) *http.Response {
	body, err := f.encode(o)
	if err != nil {
		return encodedStatus(statusOf(apierrors.NewInternalError(err)))
	}
	resp := answer(code, f.MediaType, io.NopCloser(bytes.NewReader(body)))
	resp.ContentLength = int64(len(body))
	return resp
}

// answerError makes an HTTP response of an error, in the format that the client would like.
func (s *Server) answerError(req *http.Request, err error) *http.Response {
	status := statusOf(err)
	f, ferr := s.accepted(req.Header.Get("Accept"), nil)
	if ferr != nil {
		return encodedStatus(status)
	}
	resp := answerObject(int(status.Code), f, status)
	retryAfter(resp, status)
	return resp
}

// encodedStatus is a Status in JSON, which every client understands.
func encodedStatus(status *metav1.Status) *http.Response {
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // a Status has nothing that JSON has not
	}
	resp := answer(int(status.Code), runtime.ContentTypeJSON, io.NopCloser(bytes.NewReader(body)))
	retryAfter(resp, status)
	return resp
}

func retryAfter(resp *http.Response, status *metav1.Status) {
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
}

// jsonOf returns the JSON of an object, with its kind.
func jsonOf(o object) ([]byte, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.MarshalJSON()
	}
	return json.Marshal(o)
}
