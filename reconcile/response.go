package reconcile

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

// write is what the server says of one object that it has written or begun to delete.
type write struct {
	target
	object          Key
	uid             types.UID
	resourceVersion string // of a deletion it says little: that is seen when the object is gone or going
	deleted         bool
	labels          map[string]string
	labelsKnown     bool // the answer has the object's labels, or that there are none
}

func newWrite(t target, deleted bool, o metadata) write {
	if o.Details != nil { // a Status, as answers a deletion that was completed at once
		return write{target: t, deleted: deleted, object: Key{Namespace: t.namespace, Name: t.name}, uid: o.Details.UID}
	}
	return write{
		target: t, deleted: deleted, object: Key{Namespace: o.Namespace, Name: o.Name},
		uid: o.UID, resourceVersion: o.ResourceVersion, labels: o.Labels, labelsKnown: true,
	}
}

// metadata is as much as the ledger reads of an answer: an object's metadata, or a Status's details.
type metadata struct {
	metav1.ObjectMeta
	Details *metav1.StatusDetails
}

// decodeMetadata reads the metadata of the object, or of the objects of the list, that an answer holds. What it is, the
// contents tell: there are kinds of objects called AllowList or Status, with fields called items or details, and lists
// of any kind. What has a UID is an object; what has items and no UID is a list.
func decodeMetadata(contentType string, body []byte) ([]metadata, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	if media == runtime.ContentTypeProtobuf {
		return decodeProtobuf(body)
	}
	// Every encoding is read into the same few fields; what else there is, is skipped.
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
		return []metadata{{ObjectMeta: answer.Metadata}}, nil
	case isStatus(answer.APIVersion, answer.Kind):
		var details metav1.StatusDetails
		if answer.Details != nil {
			err = utiljson.Unmarshal(answer.Details, &details)
		}
		return []metadata{{Details: &details}}, err
	case bytes.HasPrefix(answer.Items, []byte("[")):
		var items []metav1.PartialObjectMetadata
		err := utiljson.Unmarshal(answer.Items, &items)
		return metadataOf(items), err
	default:
		return []metadata{{ObjectMeta: answer.Metadata}}, nil
	}
}

// asJSON returns a body as JSON.
func asJSON(media string, body []byte) ([]byte, error) {
	switch media {
	case runtime.ContentTypeJSON:
		return body, nil
	case runtime.ContentTypeCBOR:
		// The decoder refuses fields that are not asked for, so everything is decoded, and what matters picked from it.
		var everything map[string]any
		if err := direct.Unmarshal(body, &everything); err != nil {
			return nil, err
		}
		return json.Marshal(everything)
	default:
		return nil, fmt.Errorf("the content type %q is none of JSON, CBOR and protobuf", media)
	}
}

// isStatus reports whether something is an answer's Status, and not an object of a kind of that name.
func isStatus(apiVersion, kind string) bool { return kind == "Status" && apiVersion == "v1" }

func metadataOf(items []metav1.PartialObjectMetadata) (all []metadata) {
	for _, item := range items {
		all = append(all, metadata{ObjectMeta: item.ObjectMeta})
	}
	return all
}

// protobufMark is what Kubernetes' protobuf encoding begins with. A runtime.Unknown follows, whose Raw is the object.
var protobufPrefix = []byte{'k', '8', 's', 0}

func openProtobuf(body []byte) (unknown runtime.Unknown, err error) {
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return unknown, fmt.Errorf("the body does not start with protobuf's mark %q", protobufPrefix)
	}
	return unknown, unknown.Unmarshal(raw)
}

// decodeProtobuf reads an answer in Kubernetes' protobuf encoding. Each API object has its metadata in field 1, and
// each list its items in field 2, so the messages of PartialObjectMetadata read them all. The metadata of a list, read
// as that of an object, has neither UID nor name, or cannot be read at all.
func decodeProtobuf(body []byte) ([]metadata, error) {
	unknown, err := openProtobuf(body)
	if err != nil {
		return nil, err
	}
	var object metav1.PartialObjectMetadata
	if err := object.Unmarshal(unknown.Raw); err == nil && object.UID != "" {
		return []metadata{{ObjectMeta: object.ObjectMeta}}, nil
	} else if isStatus(unknown.APIVersion, unknown.Kind) {
		var status metav1.Status
		err := status.Unmarshal(unknown.Raw)
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		return []metadata{{Details: status.Details}}, err
	} else if err == nil && object.Name != "" {
		return []metadata{{ObjectMeta: object.ObjectMeta}}, nil
	}
	var list metav1.PartialObjectMetadataList
	err = list.Unmarshal(unknown.Raw)
	return metadataOf(list.Items), err
}

// refused reports whether an answer that is no success proves that nothing has been written.
//
// A 4xx does, but for the deletion of a collection: that deletes one object after the other until one is refused. Of a
// 5xx only what an API server says of admission does, which comes before it writes, but for a deletion: that may write
// twice, with admission before each.
func refused(method string, t target, resp *http.Response) bool {
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusMethodNotAllowed:
		return true
	case method == http.MethodDelete && t.name == "":
		return resp.StatusCode < 400 // it has been sent elsewhere
	case resp.StatusCode < 500:
		return true
	case method == http.MethodDelete:
		return false
	}
	body, err := readAnswer(resp)
	return err == nil && admissionFailed(statusMessage(resp.Header.Get("Content-Type"), body))
}

// admissionFailed reports whether the message of a Status says that admission has failed or refused the write. The
// texts are those of k8s.io/apiserver, in pkg/admission/plugin and pkg/util/webhook; there is nothing else in such an
// answer that says so.
func admissionFailed(message string) bool {
	if denied, ok := strings.CutPrefix(message, `admission webhook "`); ok {
		_, after, _ := strings.Cut(denied, `"`)
		return strings.HasPrefix(after, " denied the request") // with a code of the webhook's own
	}
	failed, ok := strings.CutPrefix(message, "Internal error occurred: ")
	if !ok {
		return false
	}
	return strings.HasPrefix(failed, `failed calling webhook "`) || strings.HasPrefix(failed, `admission webhook "`) ||
		failed == "resource quota evaluation timed out"
}

// statusMessage returns the message of the Status that an answer holds, or "".
func statusMessage(contentType string, body []byte) string {
	media, _, _ := mime.ParseMediaType(contentType)
	var status metav1.Status
	if media == runtime.ContentTypeProtobuf {
		unknown, err := openProtobuf(body)
		if err != nil || !isStatus(unknown.APIVersion, unknown.Kind) || status.Unmarshal(unknown.Raw) != nil {
			return ""
		}
		return status.Message
	}
	body, err := asJSON(media, body)
	if err != nil || utiljson.Unmarshal(body, &status) != nil || !isStatus(status.APIVersion, status.Kind) {
		return ""
	}
	return status.Message
}
