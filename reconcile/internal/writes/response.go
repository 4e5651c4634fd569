package writes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Write is what an answer tells about one object that the server has written or deleted.
type Write struct {
	Target
	Object          Key
	UID             types.UID
	ResourceVersion string // of a deletion, a version at which the object still existed; empty if none is known
	Created         bool   // it did not exist before
	Labels          map[string]string
	labelsKnown     bool // the answer has the object's labels, or that there are none
	Owners          []metav1.OwnerReference

	// Deleted says that the object is gone. Then Final says that ResourceVersion is its last version, MayStay that it
	// may be terminating instead, and Unsure that it may have stayed for a reason that the answer does not tell.
	Deleted, Final, MayStay, Unsure bool
}

// NewWrite reads what the answer to a request says of an object.
//
//	a Status, of a deletion             the object is gone
//	an object that nothing keeps: it    the object is gone. So answers DELETE, with the last version; and so answers
//	is being deleted, and has neither   the PUT or PATCH that removes the last finalizer, with the version that it has
//	finalizers nor grace left           found. But a namespace may have stayed: it has finalizers in its spec
//	an object that is not being         the object is gone: kinds without a grace period are answered like this
//	deleted, of a deletion
//	any other object                    the object has that version. That is also a deletion that waits for finalizers
//	                                    or for a grace period
//	an item of a collection's deletion  this is the state before. With finalizers, it is terminating now; if it was
//	                                    terminating before, or has a grace period, it may have stayed
//
// Source: k8s.io/apiserver, pkg/registry/generic/registry (Store.Update, Delete, DeleteCollection). The file
// testdata/answers.json of package debts has the answers of a real server.
func NewWrite(t Target, method string, status int, o Metadata) Write {
	if o.Details != nil {
		return Write{Target: t, Object: Key{Namespace: t.Namespace, Name: t.Name}, UID: o.Details.UID,
			Deleted: method == http.MethodDelete}
	}
	w := Write{
		Target: t, Object: Key{Namespace: o.Namespace, Name: o.Name}, UID: o.UID, ResourceVersion: o.ResourceVersion,
		Created: status == http.StatusCreated && t.Subresource == "",
		Labels:  o.Labels, labelsKnown: t.Subresource != "scale",
		Owners: o.OwnerReferences,
	}
	going := o.DeletionTimestamp != nil
	switch deletes := method == http.MethodDelete; {
	case deletes && t.Name == "":
		w.Deleted, w.MayStay = true, !going && len(o.Finalizers) > 0
		w.Unsure = !w.MayStay
	case IsGone(&o), deletes && !going:
		w.Deleted, w.Final, w.Unsure = true, deletes, t.Group == "" && t.Resource == "namespaces"
	}
	return w
}

// IsGone reports whether an object that was written is gone: it was being deleted, and nothing keeps it any more.
func IsGone(o metav1.Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// Metadata is the part of an answer that is read: an object's metadata, or the details of a Status.
type Metadata struct {
	metav1.ObjectMeta
	Details *metav1.StatusDetails
}

// DecodeMetadata reads the metadata of the object, or of each object of the list, that an answer holds. The kind's name
// does not tell which of them it is: objects may be called AllowList or Status and have fields called items or details,
// and lists may have any name. So what has a UID is an object, and what has items and no UID is a list.
func DecodeMetadata(media string, body []byte) (_ []Metadata, err error) {
	if media == runtime.ContentTypeProtobuf {
		return decodeProtobuf(body)
	}
	// All encodings but protobuf are read into these fields; everything else in the body is skipped.
	var answer struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Details         json.RawMessage   `json:"details"`
		Items           json.RawMessage   `json:"items"`
	}
	if body, err = asJSON(media, body); err == nil {
		err = utiljson.Unmarshal(body, &answer)
	}
	switch {
	case err != nil:
		return nil, err
	case answer.Metadata.UID != "":
		return []Metadata{{ObjectMeta: answer.Metadata}}, nil
	case isStatus(answer.APIVersion, answer.Kind):
		var details metav1.StatusDetails
		if answer.Details != nil {
			err = utiljson.Unmarshal(answer.Details, &details)
		}
		return []Metadata{{Details: &details}}, err
	case bytes.HasPrefix(answer.Items, []byte("[")):
		var items []metav1.PartialObjectMetadata
		err := utiljson.Unmarshal(answer.Items, &items)
		return metadataOf(items), err
	default:
		return []Metadata{{ObjectMeta: answer.Metadata}}, nil
	}
}

// mediaOf returns the encoding of an answer. It is an error if it is none of those that the API server has: then the
// body may be a stream, and is not read.
func mediaOf(contentType string) (media string, err error) {
	media, _, err = mime.ParseMediaType(contentType)
	switch media {
	case runtime.ContentTypeJSON, runtime.ContentTypeCBOR, runtime.ContentTypeProtobuf:
		return media, err
	}
	return "", fmt.Errorf("the content type %q is none of JSON, CBOR and protobuf", contentType)
}

// asJSON returns a body in JSON or CBOR as JSON.
func asJSON(media string, body []byte) ([]byte, error) {
	switch media {
	case runtime.ContentTypeJSON:
		return body, nil
	case runtime.ContentTypeCBOR:
		// The decoder refuses fields that its target does not have, so it decodes everything first.
		var everything map[string]any
		if err := direct.Unmarshal(body, &everything); err != nil {
			return nil, err
		}
		return json.Marshal(everything)
	default:
		return nil, fmt.Errorf("the content type %q is none of JSON, CBOR and protobuf", media)
	}
}

// isStatus tells the Status of the API machinery from an object whose kind is called Status, too.
func isStatus(apiVersion, kind string) bool { return kind == "Status" && apiVersion == "v1" }

func metadataOf(items []metav1.PartialObjectMetadata) (all []Metadata) {
	for _, item := range items {
		all = append(all, Metadata{ObjectMeta: item.ObjectMeta})
	}
	return all
}

// protobufPrefix begins each message in Kubernetes' protobuf encoding. A runtime.Unknown follows, whose Raw is the
// object.
var protobufPrefix = []byte{'k', '8', 's', 0}

func openProtobuf(body []byte) (unknown runtime.Unknown, err error) {
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return unknown, fmt.Errorf("the body does not start with %q, as Kubernetes' protobuf encoding does",
			protobufPrefix)
	}
	return unknown, unknown.Unmarshal(raw)
}

// decodeProtobuf reads an answer in Kubernetes' protobuf encoding. Every API object has its metadata in field 1, and
// every list its items in field 2, so PartialObjectMetadata and its list can read all of them. The metadata of a list,
// read as that of an object, has neither UID nor name, or cannot be read at all.
func decodeProtobuf(body []byte) ([]Metadata, error) {
	unknown, err := openProtobuf(body)
	if err != nil {
		return nil, err
	}
	var object metav1.PartialObjectMetadata
	if err := object.Unmarshal(unknown.Raw); err == nil && object.UID != "" {
		return []Metadata{{ObjectMeta: object.ObjectMeta}}, nil
	} else if isStatus(unknown.APIVersion, unknown.Kind) {
		var status metav1.Status
		err := status.Unmarshal(unknown.Raw)
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		return []Metadata{{Details: status.Details}}, err
	} else if err == nil && object.Name != "" {
		return []Metadata{{ObjectMeta: object.ObjectMeta}}, nil
	}
	var list metav1.PartialObjectMetadataList
	err = list.Unmarshal(unknown.Raw)
	return metadataOf(list.Items), err
}

// refused reports whether an answer that is not a success proves that nothing has been written.
//
// A 4xx proves it, except of the deletion of a collection, which deletes one object after the other until one is
// refused. A 5xx proves it only if the API server says that admission has failed, since admission comes before the
// write; and not of a deletion, which may write twice, with admission before each write.
func refused(method string, t Target, resp *http.Response) bool {
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusMethodNotAllowed:
		return true
	case method == http.MethodDelete && t.Name == "":
		return resp.StatusCode < 400 // a redirect
	case resp.StatusCode < 500:
		return true
	case method == http.MethodDelete:
		return false
	}
	body, err := readAnswer(resp)
	status, _ := statusOf(resp.Header.Get("Content-Type"), body)
	return err == nil && admissionFailed(status.Message)
}

// admissionFailed reports whether the message of a Status says that admission has failed or denied the write. The texts
// are those of k8s.io/apiserver, in pkg/admission/plugin and pkg/util/webhook; nothing else in such an answer tells.
func admissionFailed(message string) bool {
	if denied, ok := strings.CutPrefix(message, `admission webhook "`); ok {
		_, after, _ := strings.Cut(denied, `"`)
		return strings.HasPrefix(after, " denied the request") // with a status code that the webhook chose
	}
	failed, ok := strings.CutPrefix(message, "Internal error occurred: ")
	if !ok {
		return false
	}
	return strings.HasPrefix(failed, `failed calling webhook "`) || strings.HasPrefix(failed, `admission webhook "`) ||
		failed == "resource quota evaluation timed out"
}

// statusOf returns the Status in an answer, if there is one.
func statusOf(contentType string, body []byte) (status metav1.Status, ok bool) {
	media, _, _ := mime.ParseMediaType(contentType)
	if media == runtime.ContentTypeProtobuf {
		unknown, err := openProtobuf(body)
		if err != nil || !isStatus(unknown.APIVersion, unknown.Kind) || status.Unmarshal(unknown.Raw) != nil {
			return metav1.Status{}, false
		}
		return status, true
	}
	body, err := asJSON(media, body)
	if err != nil || utiljson.Unmarshal(body, &status) != nil || !isStatus(status.APIVersion, status.Kind) {
		return metav1.Status{}, false
	}
	return status, true
}
