package reconciletest

// crdCorpus is about custom resources with a schema: those of testdata/backups.yaml.
var crdCorpus = []conversation{
	{"defaults", []step{
		post("backups", "a", `"spec":{"database":"x"}`), post("backups", "b", `"spec":{"database":"x","retention":{}}`),
		post("backups", "c", `"spec":{"database":"x","retention":{"days":3,"unit":"week"},"copies":0}`),
		post("backups", "d", `"spec":{"database":"x","targets":[{"name":"one"},{"name":"two","weight":1}]}`),
		put("backups/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"spec":{"database":"x"}`)}},
	{"nulls", []step{
		post("backups", "a", `"spec":{"database":"x","note":null,"suspend":null,"schedule":null,"retention":null,`+
			`"labels":{"k":null}}`), merge("backups/a", `{"spec":{"copies":null}}`),
		post("backups", "b", `"spec":{"database":null}`), post("backups", "c", `"spec":null`)}},
	{"unknown fields are pruned", []step{
		post("backups", "a", `"metadata":{"nonsense":1},"other":1,"spec":{"database":"x","nonsense":{"y":1},`+
			`"retention":{"days":1,"more":2},"targets":[{"name":"one","z":1}],"steps":[{"run":"r","walk":"w"}],`+
			`"free":{"any":{"thing":1},"known":{"x":"1","y":"2"}}}`),
		merge("backups/a", `{"spec":{"nonsense":1,"free":{"other":[1,{"x":2}]}}}`),
		jsonPatch("backups/a", `[{"op":"add","path":"/spec/nonsense","value":1}]`), get("backups/a")}},
	{"unknown fields in lists that keep them, and in an apply", []step{
		post("backups", "a", `"spec":{"database":"x","loose":[{"a.b":"1","c":{"d":[1,{"e":2}]}}],`+
			`"deep":[{"known":{"x":1},"other":{"y":{"z":1}}}]}`),
		apply("backups/b?fieldManager=one", `"spec":{"database":"x","loose":[{"a.b":"1","c":{"d":[1]}}]}`),
		apply("backups/b?fieldManager=one", `"spec":{"database":"x","loose":[{"a.b":"2"},{"c":"3"}]}`),
		apply("backups/b?fieldManager=two", `"spec":{"loose":[{"a.b":"3"}]}`),
		apply("backups/c?fieldManager=one", `"spec":{"database":"x","deep":[{"known":{"x":1},"other":{"y":1}}]}`),
		apply("backups/d?fieldManager=one", `"spec":{"database":"x","bare":{"x":1}}`),
		apply("backups/e?fieldManager=one", `"spec":{"database":"x","free":{"known":{"x":"1","y":"2"}}}`),
		get("backups/a"), get("backups/b"), get("backups/c")}},
	{"unknown fields, strictly", []step{
		post("backups?fieldValidation=Strict", "a",
			`"spec":{"database":"x","nonsense":{"y":1},"retention":{"more":2}}`),
		post("backups?fieldValidation=Strict", "b", `"metadata":{"nonsense":1},"spec":{"database":"x"}`),
		post("backups", "c", `"spec":{"database":"x"}`),
		merge("backups/c?fieldValidation=Strict", `{"spec":{"nonsense":1}}`),
		post("backups?fieldValidation=Ignore", "d", `"spec":{"database":"x","nonsense":1}`)}},
	{"embedded objects", []step{
		post("backups", "a", `"spec":{"database":"x","any":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s",`+
			`"labels":{"a":"b"},"more":1,"creationTimestamp":null},"data":{"a":"Yg=="},"other":{"x":null}}}`),
		post("backups", "b", `"spec":{"database":"x","things":[{"apiVersion":"a.example.com/v1","kind":"Thing",`+
			`"metadata":{"generateName":"s-","more":1},"spec":{"size":1,"more":2},"status":{}}]}`),
		post("backups?fieldValidation=Strict", "c", `"spec":{"database":"x","things":[{"apiVersion":"v1",`+
			`"kind":"Thing","metadata":{"name":"s","more":1,"labels":{}},"spec":{"more":2}}]}`),
		post("backups", "d", `"spec":{"database":"x","any":{}}`),
		post("backups", "d", `"spec":{"database":"x","any":{"apiVersion":"v1"}}`),
		post("backups", "d", `"spec":{"database":"x","any":{"apiVersion":"a/b/c","kind":"No kind"}}`),
		post("backups", "d", `"spec":{"database":"x","any":{"apiVersion":"","kind":""}}`),
		post("backups", "d", `"spec":{"database":"x","any":{"apiVersion":1,"kind":"A"}}`),
		post("backups", "d", `"spec":{"database":"x","any":{"apiVersion":"v1","kind":"A","metadata":{"labels":5}}}`),
		post("backups", "d", `"spec":{"database":"x","any":{"apiVersion":"v1","kind":"A","metadata":"x"}}`),
		post("backups", "d", `"spec":{"database":"x","things":[{"apiVersion":"v1","kind":"A","metadata":{"name":"a/b",`+
			`"labels":{"a b":"c"}}}]}`),
		post("backups", "e", `"spec":{"database":"x","things":[{"apiVersion":"v1","kind":"A","metadata":{}},`+
			`{"apiVersion":"v1","kind":"A","metadata":null}]}`),
		merge("backups/a", `{"spec":{"any":{"metadata":{"labels":{"c":"d"},"most":1}}}}`),
		merge("backups/a", `{"spec":{"any":{"kind":null}}}`), merge("backups/a", `{"spec":{"any":{"metadata":5}}}`),
		apply("backups/f?fieldManager=one", `"spec":{"database":"x","any":{"apiVersion":"v1","kind":"A","metadata":`+
			`{"name":"s","more":1},"x":{"y":1}},"things":[{"apiVersion":"v1","kind":"A","spec":{"size":1}}]}`),
		apply("backups/f?fieldManager=one", `"spec":{"database":"x","any":{"apiVersion":"v1","kind":"A","x":{"z":1}}}`),
		get("backups/a"), get("backups/b"), get("backups/e"), get("backups/f")}},
	{"what a schema asks for", []step{
		post("backups", "a", ``), post("backups", "a", `"spec":{}`), post("backups", "a", `"spec":{"database":""}`),
		post("backups", "a", `"spec":{"database":"abcdefghijklmnopqrstuvwxyz"}`),
		post("backups", "a", `"spec":{"database":"X1"}`), post("backups", "a", `"spec":{"database":1}`),
		post("backups", "a", `"spec":"x"`), post("backups", "a", `"spec":{"database":"x","copies":10}`),
		post("backups", "a", `"spec":{"database":"x","copies":-1}`),
		post("backups", "a", `"spec":{"database":"x","copies":1.5}`),
		post("backups", "a", `"spec":{"database":"x","copies":"1"}`),
		post("backups", "a", `"spec":{"database":"x","ratio":0.3}`),
		post("backups", "a", `"spec":{"database":"x","mode":"Half"}`),
		post("backups", "a", `"spec":{"database":"x","suspend":"no"}`),
		post("backups", "a", `"spec":{"database":"x","until":"tomorrow"}`),
		post("backups", "a", `"spec":{"database":"x","port":true}`),
		post("backups", "a", `"spec":{"database":"x","labels":{"a":"1","b":"2","c":"3"}}`),
		post("backups", "a", `"spec":{"database":"x","labels":{"a":"123456"}}`),
		post("backups", "a", `"spec":{"database":"x","tags":["a","b","c","d"]}`),
		post("backups", "a", `"spec":{"database":"x","either":{}}`),
		post("backups", "a", `"spec":{"database":"x","either":{"a":"1","b":"2"}}`),
		post("backups", "a", `"spec":{"database":"X","copies":10,"mode":"Half","retention":{"days":0},`+
			`"targets":[{"weight":1}]}`)}},
	{"what a schema allows", []step{
		post("backups", "a", `"spec":{"database":"x","ratio":1.5,"mode":"Incremental","port":"http",`+
			`"labels":{"a":"1"},"tags":["a","b"],"either":{"b":"1"},"until":"2030-01-01T00:00:00Z","note":"n"}`),
		post("backups", "b", `"spec":{"database":"x","port":80,"ratio":2}`)}},
	{"sets and maps", []step{
		post("backups", "a", `"spec":{"database":"x","tags":["a","a"]}`),
		post("backups", "a", `"spec":{"database":"x","targets":[{"name":"one"},{"name":"one","weight":2}]}`),
		post("backups", "b", `"spec":{"database":"x"}`), merge("backups/b", `{"spec":{"tags":["b","b"]}}`)}},
	{"status of a schema", []step{
		post("backups", "a", `"spec":{"database":"x"},"status":{"phase":"Ready"}`),
		merge("backups/a/status", `{"status":{"phase":"Ready","more":1}}`),
		merge("backups/a/status", `{"status":{"phase":"Odd"}}`),
		merge("backups/a/status", `{"status":{"conditions":[{"type":"A","status":"True"},{"type":"A"}]}}`),
		get("backups/a"), get("backups/a/scale"), merge("backups/a/scale", `{"spec":{"replicas":11}}`),
		merge("backups/a/scale", `{"spec":{"replicas":3}}`)}},
	{"apply with a schema", []step{
		apply("backups/a?fieldManager=one",
			`"spec":{"database":"x","targets":[{"name":"one","path":"/1"}],"tags":["a"],"labels":{"k":"1"},`+
				`"whole":{"a":"1"},"steps":[{"run":"1"}]}`),
		apply("backups/a?fieldManager=two",
			`"spec":{"targets":[{"name":"two"},{"name":"one","weight":3}],"tags":["b"],"labels":{"l":"2"}}`),
		apply("backups/a?fieldManager=two", `"spec":{"whole":{"b":"2"}}`),
		apply("backups/a?fieldManager=two&force=true", `"spec":{"steps":[{"run":"2"}]}`),
		apply("backups/a?fieldManager=one", `"spec":{"database":"x"}`), get("backups/a")}},
	{"apply of what a schema does not have", []step{
		apply("backups/a?fieldManager=one", `"spec":{"database":"x","nonsense":1}`),
		apply("backups/b?fieldManager=one", `"spec":{"database":"x","free":{"any":{"thing":1}}}`),
		apply("backups/c?fieldManager=one", `"spec":{"database":"X"}`),
		apply("backups/d?fieldManager=one", `"spec":{"database":"x","copies":"many"}`),
		apply("backups/e?fieldManager=one", `"spec":{"database":"x","targets":[{"path":"/"}]}`)}},
	{"fields that can be selected", []step{
		post("backups", "a", `"spec":{"database":"x"}`), post("backups", "b", `"spec":{"database":"y"}`),
		get("backups?fieldSelector=spec.database%3Dx"), get("backups?fieldSelector=spec.mode%3DFull")}},
}
