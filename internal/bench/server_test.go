package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// server is an API server that has pods, and nothing else. Everything is encoded before anybody asks, so that answers
// take little of the CPU that its client is measured on. It has a process of its own, so that its memory and CPU time
// are not the client's.
type server struct {
	serverOptions
	pods    [][]byte // as items of a list
	events  [][]byte // as events of a watch
	version string
	begin   chan int // tells the watch of a Later server to begin, and at how many events a second
}

// serverOptions come in the environment of the process.
type serverOptions struct {
	Pods      int
	Realistic bool // else small
	JSON      bool // else protobuf
	Custom    bool // custom resources, see CronBackup, in place of pods; with JSON
	Plain     bool // lists are not streamed but plain ones, in pages if the client wants that
	// nothing exists at first; the pods are events that follow once the client has asked for them: see send
	Later bool
	// the pods can be written, and a watch is told of it after a delay: see writable
	Writes bool
	Delay  time.Duration
	// that many objects of this resource, whole or their metadata, in place of pods: see serveCatalog
	Catalog string
}

const serverEnv = "THERMOSTAT_BENCH_SERVER"

func TestMain(m *testing.M) {
	if o := os.Getenv(serverEnv); o != "" {
		serve(o)
		return
	}
	os.Exit(m.Run())
}

// startServer starts a server, which ends with the benchmark, and returns how to reach it.
func startServer(b *testing.B, o serverOptions) *rest.Config {
	encoded, err := json.Marshal(o)
	must(b, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+string(encoded))
	cmd.Stderr = os.Stderr
	leash, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		leash.Close()
		must(b, cmd.Wait())
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	must(b, err)
	c := &rest.Config{Host: "http://" + strings.TrimSpace(address), QPS: -1}
	if !o.JSON {
		c.ContentType, c.AcceptContentTypes = k8sruntime.ContentTypeProtobuf,
			k8sruntime.ContentTypeProtobuf+","+k8sruntime.ContentTypeJSON
	}
	return c
}

// send lets a Later server send its pods, perSecond of them or, if that is 0, as fast as they are read.
func send(b *testing.B, c *rest.Config, perSecond int) {
	answer, err := http.Post(c.Host+"/send?rate="+strconv.Itoa(perSecond), "", nil)
	must(b, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status)
	}
}

// serve is the server's process. It ends when the other end of its standard input is closed.
func serve(options string) {
	s := &server{begin: make(chan int, 1)}
	try(json.Unmarshal([]byte(options), &s.serverOptions))
	if s.Writes {
		serveWrites(s.serverOptions)
		return
	}
	if s.Catalog != "" {
		serveCatalog(s.serverOptions)
		return
	}
	s.encode()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(err)
	path := "/api/v1/pods"
	if s.Custom {
		path = "/apis/" + backupVersion.String() + "/" + backups.Resource
	}
	http.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			s.list(w, r)
		} else {
			s.watch(w, r)
		}
	})
	http.HandleFunc("POST /send", func(_ http.ResponseWriter, r *http.Request) {
		rate, err := strconv.Atoi(r.URL.Query().Get("rate"))
		try(err)
		s.begin <- rate
	})
	go func() { try(http.Serve(l, nil)) }()
	fmt.Println(l.Addr())
	io.Copy(io.Discard, os.Stdin)
}

func try(err error) {
	if err != nil {
		panic(err)
	}
}

// sentAt is an annotation for when an event was sent, in nanoseconds since 1970. unsent stands in its place until then.
const (
	sentAt = "bench/sent"
	unsent = "0000000000000000000"
)

func (s *server) encode() {
	s.version = strconv.Itoa(firstVersion + s.Pods)
	if file := s.encodedFile(); file == "" {
		s.encodePods()
	} else if encoded, err := os.ReadFile(file); err == nil {
		for len(encoded) > 0 {
			pod, n := protowire.ConsumeBytes(encoded)
			try(protowire.ParseError(n))
			s.pods, encoded = append(s.pods, pod), encoded[n:]
		}
	} else {
		s.encodePods()
		for _, pod := range s.pods {
			encoded = protowire.AppendBytes(encoded, pod)
		}
		try(os.WriteFile(file, encoded, 0o600))
	}
	if !s.Plain {
		for _, pod := range s.pods {
			s.events = append(s.events, s.event("ADDED", pod))
		}
	}
}

// encodedFile is where the pods of servers with such options are kept; empty: nowhere.
func (s *server) encodedFile() string {
	dir := os.Getenv(encodedEnv)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf("%d,realistic=%t,json=%t,custom=%t,later=%t", s.Pods, s.Realistic, s.JSON,
		s.Custom, s.Later))
}

func (s *server) encodePods() {
	s.pods = make([][]byte, s.Pods)
	var encoders sync.WaitGroup
	for worker := range runtime.GOMAXPROCS(0) {
		encoders.Go(func() {
			for i := worker; i < s.Pods; i += runtime.GOMAXPROCS(0) {
				if s.Custom {
					s.pods[i] = s.item(realisticBackup(i, firstVersion+i+1))
					continue
				}
				make := smallPod
				if s.Realistic {
					make = realisticPod
				}
				p := make(i, firstVersion+i+1)
				if s.Later {
					p.Annotations = map[string]string{sentAt: unsent}
				}
				s.pods[i] = s.item(p)
			}
		})
	}
	encoders.Wait()
}

// firstVersion is that of the server before the first pod.
const firstVersion = 1_000_000

func (s *server) item(o any) (encoded []byte) {
	var err error
	if s.JSON {
		encoded, err = json.Marshal(o)
	} else {
		encoded, err = o.(*corev1.Pod).Marshal()
	}
	try(err)
	return encoded
}

func (s *server) event(kind string, item []byte) []byte {
	if s.JSON {
		typed := `"kind":"Pod","apiVersion":"v1",`
		if s.Custom {
			typed = "" // the item has it
		}
		return fmt.Appendf(nil, `{"type":%q,"object":{%s%s}`+"\n", kind, typed, item[1:])
	}
	object := append(envelopeOf("Pod", len(item)), item...)
	event := field(nil, 1, []byte(kind))
	event = field(event, 2, field(nil, 1, object))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// envelopeOf is how an object in protobuf begins; n bytes of the object itself follow.
func envelopeOf(kind string, n int) []byte {
	e := append([]byte("k8s\x00"), field(nil, 1, field(field(nil, 1, []byte("v1")), 2, []byte(kind)))...)
	return protowire.AppendVarint(protowire.AppendTag(e, 2, protowire.BytesType), uint64(n))
}

func field(to []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	items, meta := s.pods, metav1.ListMeta{ResourceVersion: s.version}
	if s.Later {
		items, meta.ResourceVersion = nil, strconv.Itoa(firstVersion)
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	items = items[from:]
	// As real servers do: from their cache, which resourceVersion 0 asks for, a list comes in one piece.
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(items) &&
		r.URL.Query().Get("resourceVersion") != "0" {
		items, meta.Continue = items[:limit], strconv.Itoa(from+limit)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	defer out.Flush()
	if s.JSON {
		w.Header().Set("Content-Type", "application/json")
		encoded, err := json.Marshal(meta)
		try(err)
		kind, version := "PodList", "v1"
		if s.Custom {
			kind, version = "CronBackupList", backupVersion.String()
		}
		fmt.Fprintf(out, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, version, encoded)
		for i, item := range items {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(item)
		}
		out.WriteString("]}\n")
		return
	}
	w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf)
	encoded, err := meta.Marshal()
	try(err)
	head := field(nil, 1, encoded)
	size := len(head)
	for _, item := range items {
		size += protowire.SizeTag(2) + protowire.SizeBytes(len(item))
	}
	out.Write(envelopeOf("PodList", size))
	out.Write(head)
	for _, item := range items {
		out.Write(protowire.AppendVarint(protowire.AppendTag(out.AvailableBuffer(), 2, protowire.BytesType),
			uint64(len(item))))
		out.Write(item)
	}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	streamed := r.URL.Query().Get("sendInitialEvents") == "true"
	if streamed && s.Plain {
		s.refuseStream(w)
		return
	}
	w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf+";stream=watch")
	if s.JSON {
		w.Header().Set("Content-Type", "application/json")
	}
	flusher := w.(http.Flusher)
	out := bufio.NewWriterSize(w, 1<<16)
	flush := func() {
		out.Flush()
		flusher.Flush()
	}
	flush()
	if streamed {
		bookmark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(firstVersion),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}
		if !s.Later {
			bookmark.ResourceVersion = s.version
			for _, e := range s.events {
				out.Write(e)
			}
		}
		item := s.item(bookmark)
		if s.Custom {
			item = s.item(&CronBackup{
				TypeMeta:   metav1.TypeMeta{APIVersion: backupVersion.String(), Kind: "CronBackup"},
				ObjectMeta: bookmark.ObjectMeta,
			})
		}
		out.Write(s.event("BOOKMARK", item))
		flush()
	}
	select {
	case rate := <-s.begin:
		s.sendEvents(out, flush, rate)
	case <-r.Context().Done():
	}
	<-r.Context().Done()
}

// sendEvents sends every event, rate of them a second, stamped with the time.
func (s *server) sendEvents(out io.Writer, flush func(), rate int) {
	begun := time.Now()
	for i, e := range s.events {
		if rate > 0 {
			for due := begun.Add(time.Duration(i) * time.Second / time.Duration(rate)); time.Until(due) > 0; {
				flush()
				time.Sleep(max(time.Until(due), 100*time.Microsecond))
			}
		}
		at := bytes.Index(e, []byte(unsent))
		strconv.AppendInt(e[:at], time.Now().UnixNano(), 10)
		out.Write(e)
	}
	flush()
}

// refuseStream answers as a server that does not stream lists.
func (s *server) refuseStream(w http.ResponseWriter) {
	refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	try(json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason,
		Code: int32(code),
	}))
}
