"""Random conversations and vLLM's token ids of them, for models in Mistral's own format:
mistral_fuzz.py COUNT SEED FOLDER... with the Python of an installed vLLM 0.32. Each line of
FOLDER/vectors is {"route", "request", "ids" | "error"}. The script needs no server and no weights: it
calls the protocol's classes, the conversions of both routes and mistral-common as the server does.
"""
import json, logging, os, random, sys, types, warnings
os.environ["VLLM_LOGGING_LEVEL"]="CRITICAL"
logging.disable(logging.CRITICAL)
from vllm.tokenizers import mistral as mt
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.mistral import safe_apply_chat_template
from vllm.renderers import merge_kwargs
logging.disable(logging.CRITICAL)
cfg = types.SimpleNamespace(enable_prompt_embeds=False, is_multimodal_model=False, multimodal_config=None, model="m", allowed_local_media_path="", allowed_media_domains=None, hf_config=types.SimpleNamespace(model_type="mistral"), runner_type="generate")
def render(tok, route, body):
    body=json.loads(json.dumps(body))
    if route=="/v1/chat/completions":
        req=ChatCompletionRequest.model_validate(body)
        mt.maybe_serialize_tool_calls(req); mt.truncate_tool_call_ids(req); mt.validate_request_params(req)
        tools=None if req.tools is None else [t.model_dump() for t in req.tools]
        messages=req.messages
    else:
        req=ResponsesRequest.model_validate(body)
        tools=construct_tool_dicts(req.tools, req.tool_choice, exclude_tools_when_tool_choice_none=False)
        messages=construct_input_messages(request_instructions=req.instructions, request_input=req.input)
    cp=req.build_chat_params(None,"auto").with_defaults(dict(tools=tools,tokenize=True))
    parse_chat_messages(messages, cfg, content_format="string")
    return safe_apply_chat_template(tok, messages, **cp.get_apply_chat_template_kwargs())
R=random
T=[False]
THINK=[False]
VER=[0]
WORDS="the weather Paris [INST] </s> <s> [TOOL_CALLS] [REF] [REFERENCE_DOC_3] 北京 don't 1e-7 \n\n \t   \u00a0 é e\u0301 👩‍👩‍👧 f(x): {\"a\":1} 3.14159 -0 x-anthropic-billing-header ZZ \ufeff naïve İ ſ שלום 한국어 \u2028 [ARGS] <0x0A> ▁ a▁b ABCdef 12345 …".split(" ")
WORDS+=[" ","  ","\n","","\u0000","x-anthropic-billing-header: a\nb"]
def text():
    k=R.random()
    if k<.06: return ""
    if k<.1: return R.choice(["   ","\n"," a  ","a   ","{\"k\": [1, 2.50, 1e5, 1E400, -0.0, NaN], \"é\": \"\\u00e9\\n\"}","[1,2","\"s\"","null","123","{\"a\":1,\"a\":2}"])
    if k<.2:
        return "".join(chr(R.choice([R.randrange(32,0x250),R.randrange(0x250,0xd800),R.randrange(0xe000,0xffff),R.randrange(0x10000,0x12000),R.randrange(0x1f000,0x1fb00)])) for _ in range(R.randrange(1,16)))
    return R.choice([""," "," "]).join(R.choice(WORDS) for _ in range(R.randrange(1,14)))
def content(role):
    k=R.random()
    if T[0]:
        if k<.7: return text() or "x"
        return [{"type":"text","text":text()} if R.random()<.8 or role!="assistant" or not THINK[0] else {"type":"thinking","thinking":text()} for _ in range(R.randrange(1,4))]
    if k<.62: return text()
    if k<.66: return None
    if k<.68: return []
    parts=[]
    for _ in range(R.randrange(1,4)):
        j=R.random()
        if j<.86: parts.append({"type":"text","text":text()})
        elif j<.94: parts.append({"type":"thinking","thinking":text(),**({"closed":R.random()<.5} if R.random()<.5 else {})})
        elif j<.96: parts.append({"type":"refusal","refusal":text()})
        elif j<.98: parts.append(text())
        else: parts.append({"type":"text","text":text(),"cache_control":{"type":"ephemeral"}})
    return parts
def cid():
    return R.choice(["abcdefghi","123456789","call_12345","call_abcdefghi","x","null","","toolu_01ABCDEFGHIJ","AAAAAAAAA","BBBBBBBBB","abcdefghi\n"]) if R.random()<(0 if T[0] else .2) else "".join(R.choice("abcXYZ019") for _ in range(9))
def args():
    k=R.random()
    if k<.6: return json.dumps({R.choice("abc é"):R.choice([1,1.5,None,True,"x é","\n",[1,{"z":2}],{"b":{}},10**25,1e22,-0.0]) for _ in range(R.randrange(0,4))},ensure_ascii=R.random()<.5)
    return R.choice(["","{}","[]","not json","{\"a\": 1e5, \"b\": 1E400}","{\"a\":1,\"a\":2}"," {\"x\" : [1 , 2]} ","null","{\"a\":\"\\u00e9\"}","{\"a\": 1} x"])
def name(): return R.choice(["search","get_weather","a-b","run_2","bad name","x"*64,"x"*65,"é","f\n"]) if R.random()<(0 if T[0] else .08) else R.choice(["search","get_weather","a-b"])
def calls(n): return [{"id":cid(),"type":"function","function":{"name":name(),"arguments":args()}} for _ in range(n)]
def schema(d=0):
    s={}
    if T[0]: return {"type":"object","properties":{n:R.choice([{"type":"string","description":text()},{"type":"integer","default":1.0},{"enum":["a",1,None]}]) for n in R.sample(["a","b","é"],2)},"required":["a"]}
    if R.random()<.9: s["type"]=R.choice(["object","string","integer","number","boolean","array","null",["string","null"]]) if d else "object"
    if R.random()<.03: s["type"]=R.choice(["strin",[],["string","string"],5,None])
    if R.random()<.5: s["description"]=R.choice(["x","é \"q\"",text()])
    if R.random()<.1: s["default"]=R.choice([1,1.0,"x",None,[1]])
    if R.random()<.1: s["enum"]=R.choice([["a","b"],[1,2.0,None],[]])
    if R.random()<.1: s["pattern"]=R.choice(["^a+$","[a-z]{2}","\\d+(x|y)?","(?P<n>a)","[","*a","a{2,1}","\\p{L}"])
    if R.random()<.1: s["minimum"]=R.choice([0,-1,1.5,"1",True])
    if R.random()<.1: s["minLength"]=R.choice([0,1,-1,1.0,1.5])
    if R.random()<.05: s["additionalProperties"]=R.choice([False,True,{},1])
    if R.random()<.05: s["items"]=R.choice([{}, [{}], [], True, "x"])
    if R.random()<.05: s["anyOf"]=R.choice([[{}],[],[{"type":"string"},{"type":"nul"}],{}])
    if R.random()<.05: s["multipleOf"]=R.choice([1,0,0.5,-1])
    if R.random()<.03: s["$ref"]=R.choice(["#/x",1])
    if R.random()<.03: s["dependencies"]=R.choice([{"a":["b"]},{"a":["b","b"]},{"a":{}},[]])
    if R.random()<.03: s["patternProperties"]=R.choice([{"^x":{}},{"(":{}},{"a":1}])
    if d<3 and R.random()<.8: 
        s["properties"]={n:schema(d+1) for n in R.sample(["a","b","city","é"],R.randrange(0,3))}
    if R.random()<.3: s["required"]=R.choice([["a"],[],["a","a"],"a",["a","b"]] if R.random()<.1 else [["a"],[],["a","b"]])
    return s
def tools():
    out=[]
    for _ in range(R.randrange(1,4)):
        f={"name":name()}
        if R.random()<.8: f["description"]=R.choice([text(),None])
        if R.random()<.9: f["parameters"]=R.choice([schema(),schema(),schema(),{},None])
        if R.random()<.2: f["strict"]=R.choice([True,False])
        items=list(f.items()); R.shuffle(items)
        out.append({"type":"function","function":dict(items)})
    return out
def chat():
    ms=[]
    if R.random()<.5: ms.append({"role":R.choice(["system","system","developer"]),"content":content("system")})
    pending=[]
    for _ in range(R.randrange(1,7)):
        k=R.random()
        if pending and k<.85:
            R.random()<.3 and R.shuffle(pending)
            for c in pending:
                m={"role":"tool","tool_call_id":c if R.random()<.95 else cid(),"content":content("tool")}
                if R.random()<.1: m["name"]=name()
                ms.append(m)
            pending=[]
            if R.random()<.6: ms.append({"role":"assistant","content":content("assistant")})
        elif k<.5: ms.append({"role":"user","content":content("user"),**({"name":"bob"} if R.random()<.05 else {})})
        elif k<.95:
            m={"role":"assistant"}
            if T[0] or R.random()<.8: m["content"]=content("assistant")
            if R.random()<.4:
                if T[0] and VER[0]<7: m.pop("content",None)
                m["tool_calls"]=calls(R.randrange(1 if T[0] else 0,3)); pending=[c["id"] for c in m["tool_calls"]]
            if R.random()<(.12 if THINK[0] or not T[0] else 0): m[R.choice(["reasoning","reasoning_content"])]=text()
            items=list(m.items()); R.shuffle(items); m=dict(items)
            ms.append(m)
        elif not T[0]: ms.append({"role":R.choice(["system","developer"]),"content":content("system")})
    if (T[0] or R.random()<.7) and not(ms and ms[-1]["role"]=="user"): ms.append({"role":"user","content":text()})
    b={"model":"m","messages":ms}
    if R.random()<.4: b["tools"]=tools()
    if "tools" in b and R.random()<.3: b["tool_choice"]=R.choice(["auto","none","required"])
    if R.random()<.2: b["reasoning_effort"]=R.choice(["none","high"] if T[0] else ["none","high","low","medium","max","x"])
    if R.random()<.1: b["add_generation_prompt"]=False
    if ms[-1]["role"]=="assistant" and R.random()<.6: b["continue_final_message"]=True; b["add_generation_prompt"]=False
    if not T[0] and R.random()<.05: b["chat_template_kwargs"]={"a":1}
    return "/v1/chat/completions", b
def responses():
    items=[]
    pend=[]
    for _ in range(R.randrange(1,6)):
        k=R.random()
        if pend and k<.8:
            for c in pend: items.append({"type":"function_call_output","call_id":c,"output":text()})
            pend=[]
        elif k<.45: items.append({"role":"user","content":text() if R.random()<.93 else [{"type":"input_text","text":text()}]})
        elif k<.65: items.append({"role":"assistant","content":text()} if R.random()<.5 else {"type":"message","id":"m1","status":R.choice(["completed","completed","incomplete"]),"role":"assistant","content":[{"type":"output_text","text":text(),"annotations":[]}]})
        elif k<.85:
            c=cid(); items.append({"type":"function_call","call_id":c,"name":name(),"arguments":args()}); pend.append(c)
        elif k<.92: items.append({"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":text()}]})
        else: items.append({"role":R.choice(["system","developer"]),"content":text()})
    if R.random()<.8: items.append({"role":"user","content":text()})
    b={"model":"m","input":items if R.random()<.95 else text()}
    if R.random()<.4: b["instructions"]=text()
    if R.random()<.3:
        b["tools"]=[{"type":"function","name":name(),"description":text(),"parameters":schema(),**({"strict":True} if R.random()<.3 else {})} for _ in range(R.randrange(1,3))]
    if R.random()<.15: b["reasoning"]={"effort":R.choice(["none","high","low"])}
    return "/v1/responses", b
def main(folder, n, seed, out):
    tok=mt.MistralTokenizer.from_pretrained(folder)
    R.seed(seed)
    VER[0]=tok.version; THINK[0]=tok.version>=13
    warnings.simplefilter("ignore")
    with open(out,"w") as f:
        for i in range(n):
            T[0]=R.random()<.75
            route,b=chat() if R.random()<.75 else responses()
            try: json.dumps(b,ensure_ascii=False).encode()
            except UnicodeEncodeError: continue
            v={"route":route,"request":b}
            try: v["ids"]=render(tok,route,b)
            except Exception as e: v["error"]=type(e).__name__
            f.write(json.dumps(v,ensure_ascii=False)+"\n")
if __name__=="__main__":
    for folder in sys.argv[3:]:
        main(folder,int(sys.argv[1]),int(sys.argv[2]),os.path.join(folder,"vectors"))
