package writes

import (
	"bytes"
	"cmp"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/thermostat-go/thermostat/informer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Key is the key of an object.
type Key = informer.Key

// Target is what a request to a Kubernetes API is about, as its URL says.
type Target struct {
	Host, Group, Resource string // Host includes the path prefix of a proxy, behind which there may be several servers
	Namespace, Name       string // Name is empty for a whole collection and for a create
	Subresource           string // without the path that may follow proxy
}

// The path of a request has one of these shapes, with the prefix of a proxy in front of it (Kubernetes API Concepts,
// "Resource URIs"):
//
//	/api/VERSION/...                         the core group, ""
//	/apis/GROUP/VERSION/...                  any other
//
// followed by RESOURCE, RESOURCE/NAME or RESOURCE/NAME/SUBRESOURCE, with namespaces/NAMESPACE/ in front for what lives
// in a namespace.
//
// No segment tells by itself what it is: a version may be any label, a prefix may contain "api", and a namespace may be
// called "pods". But an informer asks for a whole collection, so its path ends in a resource and can be read from its
// end. It shows where the group of that resource begins, and from there each write to the resource can be read. A path
// to a resource that no informer follows need not be understood: no cache will show that write.

// collection is a resource on a server, as an informer's requests show it.
type collection struct {
	Target        // host, group and resource
	root   string // what comes before the version: the host, and the path of the group
}

// addressOf returns the host and path of a URL in one spelling: with no default port, and a clean path.
func addressOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch strings.ToLower(u.Scheme) {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	absolute := u.Path
	if !strings.HasPrefix(absolute, "/") {
		absolute = "/" + absolute
	}
	return host + path.Clean(absolute)
}

// collectionOf reads the address of an informer's request, from its end. The namespace is empty if the request is for
// all namespaces.
func collectionOf(address string) (c collection, namespace string, ok bool) {
	rest, resource, _ := cutLast(address)
	if before, name, ok := cutLast(rest); ok {
		if before, marker, ok := cutLast(before); ok && marker == "namespaces" {
			if c, ok := groupOf(before); ok {
				c.Resource = resource
				return c, name, true
			}
		}
	}
	c, ok = groupOf(rest)
	c.Resource = resource
	return c, "", ok && resource != ""
}

// groupOf reads an address that ends in the version of a group.
func groupOf(address string) (c collection, ok bool) {
	c.root, _, _ = cutLast(address)
	before, last, ok := cutLast(c.root)
	if host, marker, grouped := cutLast(before); grouped && marker == "apis" {
		c.Host, c.Group = host, last
		return c, true
	}
	c.Host = before
	return c, ok && last == "api"
}

// cutLast cuts the last segment off an address; ok is false if the address is only a host.
func cutLast(address string) (before, last string, ok bool) {
	i := strings.LastIndexByte(address, '/')
	if i < 0 {
		return "", address, false
	}
	return address[:i], address[i+1:], true
}

// targetOf reads the address of a request to the collection or to an object in it.
func (c *collection) targetOf(address string) (t Target, ok bool) {
	rest, ok := strings.CutPrefix(address, c.root)
	if !ok {
		return t, false
	}
	rest, ok = strings.CutPrefix(rest, "/")
	_, rest, more := strings.Cut(rest, "/") // without the version: an object is the same in all
	if !ok || !more {
		return t, false
	}
	t = Target{Host: c.Host, Group: c.Group}
	t.Resource, t.Name, t.Subresource = cutTwo(rest)
	if t.Resource == "namespaces" && (c.Resource != "namespaces" || !ofNamespace(t.Subresource)) {
		t.Namespace = t.Name
		t.Resource, t.Name, t.Subresource = cutTwo(t.Subresource)
	}
	t.Subresource, _, _ = strings.Cut(t.Subresource, "/")
	return t, t.Resource == c.Resource
}

// ofNamespace reports whether namespaces/NAME/rest is about the namespace itself, and not about an object in it.
func ofNamespace(rest string) bool { return rest == "" || rest == "status" || rest == "finalize" }

// cutTwo cuts a path into two segments and the rest.
func cutTwo(path string) (first, second, rest string) {
	first, path, _ = strings.Cut(path, "/")
	second, rest, _ = strings.Cut(path, "/")
	return first, second, rest
}

// GuessTarget says what a request that no collection can read seems to be about. The result is for logs only.
func GuessTarget(address string) (t Target) {
	parts := strings.Split(address, "/")
	for i := 1; i < len(parts); i++ {
		c := collection{Target: Target{Host: strings.Join(parts[:i], "/")}}
		version := i + 1
		switch {
		case parts[i] == "apis" && len(parts) > i+3:
			c.Group = parts[i+1]
			version++
		case parts[i] == "api" && len(parts) > i+2:
		default:
			continue
		}
		c.root = strings.Join(parts[:version], "/")
		c.Resource = parts[version+1]
		if inside := parts[version+1:]; c.Resource == "namespaces" && len(inside) > 2 && !ofNamespace(inside[2]) {
			c.Resource = inside[2]
		}
		t, _ = c.targetOf(address)
		return t
	}
	return t
}

// ResourceOf names the resource that a request seems to be about, for texts.
func ResourceOf(u *url.URL) string { return GuessTarget(addressOf(u)).Resource }

// maxOptions is how much of a request's body dryRun reads, in bytes. DeleteOptions take a few hundred.
const maxOptions = 64 << 10

// dryRun reports whether a request is a dry run. The caller must send the request that it returns, since the body of
// the given one may have been read. A body that cannot be read is not taken for a dry run.
//
// Options are in the query. A deletion may have them in its body instead, and then the server ignores the query.
func dryRun(req *http.Request) (*http.Request, bool) {
	inQuery := strings.Contains(req.URL.RawQuery, "dryRun") && req.URL.Query().Has("dryRun")
	if req.Method != http.MethodDelete || req.Body == nil || req.Body == http.NoBody {
		return req, inQuery
	}
	req, body, whole := peekBody(req)
	if whole && len(body) == 0 {
		return req, inQuery
	}
	return req, whole && isDryDeletion(req.Header.Get("Content-Type"), body)
}

// peekBody reads the body of a request. It returns a request that has the same body, still unread; whole is false if
// the body is longer than maxOptions or cannot be read.
func peekBody(req *http.Request) (same *http.Request, body []byte, whole bool) {
	from := req.Body
	if req.GetBody != nil {
		again, err := req.GetBody()
		if err != nil {
			return req, nil, false
		}
		defer again.Close()
		from = again
	}
	body, err := io.ReadAll(io.LimitReader(from, maxOptions+1))
	whole = err == nil && len(body) <= maxOptions
	if req.GetBody != nil {
		return req, body, whole
	}
	rest := io.Reader(req.Body)
	if err != nil {
		rest = failingReader{err}
	}
	same = new(http.Request)
	*same = *req // as a RoundTripper may not change it
	same.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), req.Body}
	return same, body, whole
}

// failingReader takes the place of the rest of a body that could not be read.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// isDryDeletion reports whether the body of a deletion asks for a dry run.
func isDryDeletion(contentType string, body []byte) bool {
	if !bytes.Contains(body, []byte(metav1.DryRunAll)) {
		return false // the only value of the option is spelled like this in every encoding
	}
	var options struct {
		DryRun []string `json:"dryRun"`
	}
	media, _, _ := mime.ParseMediaType(cmp.Or(contentType, runtime.ContentTypeJSON)) // asJSON refuses what is none
	var err error
	if media == runtime.ContentTypeProtobuf {
		var envelope runtime.Unknown
		var message metav1.DeleteOptions
		if envelope, err = openProtobuf(body); err == nil {
			err = message.Unmarshal(envelope.Raw)
		}
		options.DryRun = message.DryRun
	} else if body, err = asJSON(media, body); err == nil {
		err = utiljson.Unmarshal(body, &options)
	}
	return err == nil && len(options.DryRun) > 0
}
