"""The words of the phrasebook corpus and its sentences, as tables, and how the words inflect.

A line that begins with a blank continues the line before; `english=italian` pairs a word with its
translation, and `|` parts the entries of a line. Where nouns are asked for, the name of a kind of
nouns or of a group stands for all its nouns.

* A noun gives its plurals after `/` where they are irregular, then its gender where the ending of
  the Italian does not tell (`mf`: the plural changes sides), then `-` if it has no plural and `+`
  if it has no singular.
* An entry of adjectives names the nouns which they precede in Italian and the nouns they follow.
* An entry of verbs names their objects and ends in flags: `h` a habit with the same object, `c` a
  habit with a new object each time, `n` may be going on now, `i` may be ordered, `e` only told as
  an event, `s` a state, `d` with a definite object, `a` for adults.
"""

import re
from functools import cache

NOUNS = """
person: doctor=medico/medici | student=studente m | teacher=insegnante m | lawyer=avvocato
 | cook=cuoco | engineer=ingegnere m | nurse=infermiera | waiter=cameriere m | waitress=cameriera
 | farmer=contadino | fisherman/fishermen=pescatore m | policeman/policemen=poliziotto
 | writer=scrittore m | singer=cantante m | painter=pittore m | musician=musicista m
 | journalist=giornalista m | psychologist=psicologo/psicologi | dentist=dentista m
 | photographer=fotografo | actor=attore m | actress=attrice f | tourist=turista m
 | guest=ospite m | neighbour=vicino | friend=amico/amici | scientist=scienziato
 | man/men=uomo/uomini | woman/women=donna
kid: child/children=bambino | boy=ragazzo | girl=ragazza
family: father=padre m- | mother=madre f- | brother=fratello | sister=sorella | son=figlio
 | daughter=figlia | grandfather=nonno - | grandmother=nonna - | uncle=zio/zii | aunt=zia
 | cousin=cugino | husband=marito - | wife=moglie f- | parents=genitori m+
animal: dog=cane m | cat=gatto | horse=cavallo | bird=uccello | cow=mucca | mouse/mice=topo
 | bear=orso | wolf/wolves=lupo | duck=anatra | lion=leone m | elephant=elefante m | fox=volpe f
 | monkey=scimmia | butterfly=farfalla | squirrel=scoiattolo | rabbit=coniglio
fruit: apple=mela | pear=pera | orange=arancia | lemon=limone m | banana=banana | peach=pesca
 | strawberry=fragola | cherry=ciliegia
vegetable: tomato/tomatoes=pomodoro | potato/potatoes=patata | onion=cipolla | mushroom=fungo
dish: sandwich=panino | cake=torta | pizza=pizza | biscuit=biscotto | ice cream=gelato
 | egg=uovo/uova mf
staple: bread=pane m- | cheese=formaggio - | meat=carne f- | rice=riso - | fish=pesce m-
 | butter=burro - | sugar=zucchero - | honey=miele m- | chocolate=cioccolato - | soup=minestra -
 | ham=prosciutto - | yogurt=yogurt m- | salad=insalata - | gnocchi=gnocchi m+
drink: water=acqua - | milk=latte m- | wine=vino - | orange juice=succo d'arancia m-
 | coffee=caffè m | tea=tè m | beer=birra
clothes: shirt=camicia | dress=vestito | skirt=gonna | coat=cappotto | jacket=giacca | ring=anello
 | hat=cappello | scarf/scarves=sciarpa | jumper=maglione m | tie=cravatta | shoes=scarpe f+
 | boots=stivali m+ | gloves=guanti m+ | trousers=pantaloni m+
text: book=libro | newspaper=giornale m | magazine=rivista | letter=lettera | postcard=cartolina
 | message=messaggio | poem=poesia | story=storia | article=articolo
kitchenware: cup=tazza | glass=bicchiere m | plate=piatto | bottle=bottiglia
 | knife/knives=coltello | spoon=cucchiaio
furniture: table=tavolo | chair=sedia | bed=letto | sofa=divano | wardrobe=armadio | lamp=lampada
 | mirror=specchio
thing: pen=penna | pencil=matita | key=chiave f | bag=borsa | suitcase=valigia | gift=regalo
 | umbrella=ombrello | box=scatola | map=mappa | ticket=biglietto | passport=passaporto
 | photo=foto/foto f | toy=giocattolo | ball=palla | backpack=zaino | wallet=portafoglio
 | notebook=quaderno | dictionary=dizionario | towel=asciugamano | blanket=coperta
device: phone=telefono | computer=computer m | radio=radio/radio f | television=televisione f
 | clock=orologio | camera=macchina fotografica/macchine fotografiche
instrument: guitar=chitarra | piano=pianoforte m | violin=violino
plant: flower=fiore m | rose=rosa | tree=albero | plant=pianta
vehicle: car=macchina | bicycle=bicicletta | motorbike=moto/moto f | boat=barca
transport: train=treno | bus=autobus m | taxi=taxi/taxi m | plane=aereo | ship=nave f
building: house=casa | hotel=albergo | restaurant=ristorante m | school=scuola | museum=museo
 | station=stazione f | hospital=ospedale m | church=chiesa | shop=negozio | bank=banca
 | library=biblioteca | theatre=teatro | cinema=cinema/cinema m | airport=aeroporto
 | castle=castello | tower=torre f | pharmacy=farmacia | supermarket=supermercato | stadium=stadio
 | zoo=zoo/zoo m | office=ufficio | post office=ufficio postale/uffici postali m
outdoors: park=parco | garden=giardino | square=piazza | street=strada | bridge=ponte m
 | village=paese m | city=città f | beach=spiaggia | lake=lago | river=fiume m | mountain=montagna
 | island=isola | sea=mare m- | market=mercato
indoors: room=stanza | kitchen=cucina | bathroom=bagno | balcony=balcone m
 | bedroom=camera da letto/camere da letto f | living room=soggiorno
part: door=porta | window=finestra
abstract: problem=problema m | question=domanda | answer=risposta | idea=idea | word=parola
 | exam=esame m | job=lavoro | lesson=lezione f | trip=viaggio | song=canzone f | film=film m
 | game=gioco | match=partita | mistake=errore m | dream=sogno | secret=segreto
"""
GROUPS = """
food: fruit, vegetable, dish, staple
people: person, kid, family
artist: writer, singer, painter, musician, actor, actress, photographer
pet: dog, cat, horse, rabbit
singles: pen, pencil, notebook, bag, suitcase, umbrella, backpack, towel, blanket
coloured: clothes, vehicle, singles, cup, plate, chair, sofa, lamp, door, house, flower, box, ball
hall: hotel, restaurant, shop, bank, library, theatre, cinema, airport, museum, station
gate: hall, window, door, pharmacy, supermarket, box, post office, suitcase, zoo
open air: park, garden, square, street, village, beach, lake, mountain, island
container: glass, bottle, box, bag, suitcase, wardrobe, backpack, wallet
hidden: letter, gift, key, photo, ring, wallet, chocolate, secret, box, toy
lost: key, bag, suitcase, umbrella, map, ticket, passport, wallet, backpack, phone, ring, dog, cat,
 notebook, gloves, hat, ball, camera
washable: clothes, indoors, kitchenware, street, towel, window, car
sight: museum, church, castle, tower, village, island, city, zoo, park, bridge, theatre
task: exam, question, lesson, job, problem, game, word
work: book, film, song, story, letter, article, match, trip, game, lesson
owned: clothes, book, notebook, thing, device, instrument, vehicle, pet, house, garden, room,
 bedroom, kitchen, office, job, idea, friend, neighbour, doctor, teacher, bed, dream, mistake
shopping: food, drink, clothes, book, newspaper, magazine, thing, device, furniture, vehicle,
 instrument, plant
public: artist, doctor, teacher, lawyer, engineer, nurse, cook, waiter, dentist, journalist,
 tourist, psychologist, policeman, waitress, farmer, scientist
landmark: park, garden, square, bridge, market, lake, river, beach
mates: friend, neighbour
sibling: brother, sister, son, daughter, cousin, uncle, aunt
kin: father, mother, brother, sister, son, daughter, grandfather, grandmother, uncle, aunt, cousin,
 husband, wife
daily: restaurant, shop, bank, library, theatre, museum, pharmacy, supermarket, post office, zoo
common: food, drink, animal, plant
counted: food, clothes, text, kitchenware, thing, plant, animal, person, kid, house, task, song,
 film, mistake, idea, chair
portion: drink, pizza, cake, ice cream
liked: food, drink, clothes, work, city, sea, mountain, animal, flower, house, garden, job, island,
 park
carrier: train, bus, plane
event: exam, match, lesson
warm: coffee, tea
poured: water, milk, orange juice
sweetener: sugar, honey, milk
sliced: bread, cake, ham, cheese, meat, pizza
cultural: person, restaurant, film, book, song, car, newspaper, city, word
"""
ADJECTIVES = """
big=grande : building, open air, indoors, furniture, plant, city, ship : animal, fruit, bag, box
small=piccolo : building, open air, indoors, thing, kitchenware, vehicle, animal, dish, plant, city
new=nuovo : clothes, thing, device, furniture, vehicle, instrument, hall, school, office, house,
 teacher, doctor, neighbour, cook, waiter, job, idea, song, film, game, word, book
old=vecchio : person, clothes, thing, device, furniture, vehicle, building, instrument, bridge,
 tree, pet, village, city, song, film, book
young=giovane : person
beautiful=bello : clothes, plant, building, open air, indoors, song, film, story, poem, photo,
 horse, bird, butterfly, woman, girl, actress, violin, dream, gift, city, sea
good=buono : fruit, dish, staple, drink, idea, restaurant, hotel, answer, job
excellent=ottimo : dish, bread, cheese, fish, soup, wine, beer, coffee, tea, restaurant, hotel,
 idea, answer, film, book, cook, teacher
ugly=brutto : clothes, furniture, building, photo, city, street, plant
expensive=costoso : : clothes, device, vehicle, furniture, restaurant, hotel, ticket, wine, gift
cheap=economico/economici : : clothes, device, restaurant, hotel, ticket, bicycle, car, furniture
long=lungo : : text, film, lesson, trip, dress, skirt, street, river, bridge, scarf, exam, coat
short=breve : : letter, message, poem, story, article, film, lesson, trip, answer, song
tall=alto : : person, kid, tree, tower, mountain, plant
strong=forte : : man, woman, boy, girl, horse, coffee, farmer, fisherman, lion, bear, elephant
rich=ricco : : man, woman, lawyer, doctor, actor, actress, singer, uncle, aunt, city, tourist
poor=povero : : man, woman, farmer, artist, student, fisherman, village
happy=felice & kind=gentile & polite=educato : : person, kid
sad=triste : : person, kid, song, story, film, letter, poem
tired=stanco : : person, kid, dog, horse | nice=simpatico/simpatici : : person, kid, dog
sick=malato : : person, kid, pet, cow
lazy=pigro : : student, kid, cat, dog, waiter, cook, friend, bear, neighbour, monkey
famous=famoso : : artist, scientist, museum, restaurant, city, hotel, bridge, castle, church, song,
 poem, book, film, cook, journalist
shy=timido : : person, kid, rabbit, squirrel
brave=coraggioso : : policeman, fisherman, scientist, man, woman, journalist, kid, dog, lion, nurse
intelligent=intelligente : : person, kid, dog, monkey, fox, question, answer
patient=paziente & generous=generoso & worried=preoccupato & busy=occupato : : person
elegant=elegante : : clothes, man, woman, actress, actor, hotel, restaurant, waiter, lawyer
serious=serio : : person, problem, kid | angry=arrabbiato : : person, kid, dog, lion
ready=pronto : : soup, coffee, gnocchi, pizza, cake, rice, meat, tea, fish, salad, suitcase, room
funny=divertente : : work, toy, actor, message, photo | boring=noioso : : work, job, exam
interesting=interessante : : work, text, museum, job, question, idea, city, dream
difficult=difficile & easy=facile : : task, trip, song, match
important=importante : : letter, message, task, idea, match, secret, scientist, lawyer, guest
strange=strano : : man, woman, animal, idea, question, dream, answer, word, story, film, house, song
useful=utile : : dictionary, map, book, computer, phone, word, idea, knife, bag, umbrella, gift
modern=moderno : : building, furniture, kitchen, bathroom, city, bridge
ancient=antico : : castle, church, city, village, bridge, tower, theatre, library, map, clock
clean=pulito : : washable, beach, restaurant, hotel, lake, sea
dirty=sporco : : washable, beach, dog, river, bag
empty=vuoto & full=pieno : : container, hall, beach, square | open=aperto & closed=chiuso : : gate
broken=rotto : : kitchenware, device, lamp, mirror, chair, toy, window, umbrella, bicycle, guitar
heavy=pesante : : suitcase, box, bag, backpack, table, wardrobe, sofa, dictionary, coat, blanket
fast=veloce & slow=lento : : vehicle, transport, horse, computer
hot=caldo : : coffee, tea, milk, water, soup, pizza, bread, plate, room
cold=freddo : : drink, soup, sea, lake, river, meat, room, bathroom
fresh=fresco : : fruit, vegetable, bread, cheese, fish, egg, milk, butter, water
sweet=dolce : : fruit, wine, cake, tea, orange juice
salty=salato : : soup, cheese, ham, butter, meat, rice, fish, gnocchi
ripe=maturo : : fruit, tomato | red=rosso : : coloured, apple, rose, wine
white=bianco : : coloured, wine, rose, horse, cat, rabbit, dog, church, duck
black=nero : : coloured, horse, cat, dog, bear, bird, cow
green=verde & pink=rosa & purple=viola : : coloured
yellow=giallo : : coloured, apple, rose, butterfly, bird | blue=blu : : coloured, butterfly, bird
brown=marrone : : coloured, bear, horse, dog, cow, table, wardrobe
grey=grigio : : coloured, cat, horse, mouse, rabbit, wolf
round=rotondo : : table, mirror, box, hat, window, plate, clock, tower, square
wooden=di legno : : table, chair, box, bed, spoon, toy, bridge, door, boat, house, wardrobe
leather=di pelle : : bag, jacket, shoes, gloves, sofa, boots, wallet, suitcase, skirt
comfortable=comodo : : chair, bed, sofa, shoes, boots, trousers, hotel, car, train, jacket, house
narrow=stretto & wide=largo : : street, bridge, door, bed, skirt, trousers, river, square
deep=profondo : : lake, river, sea
dangerous=pericoloso : : street, lion, wolf, bear, mountain, river, game, job, motorbike, trip
quiet=tranquillo : : open air, room, hotel, restaurant, library, neighbour, child
noisy=rumoroso : : street, city, market, kid, neighbour, restaurant, train, motorbike, hotel
crowded=affollato : : beach, market, train, bus, station, airport, restaurant, museum, square, shop
Italian=italiano & French=francese & Spanish=spagnolo : : cultural, wine, cheese
German=tedesco & English=inglese & American=americano : : cultural, beer
"""
PREDICATE_ONLY = "clean, dirty, empty, full, open, closed, broken, busy, ready"
SECONDARY = """Italian, French, English, German, Spanish, American, wooden, leather, round,
 red, white, black, green, yellow, blue, pink, purple, brown, grey"""
UNGRADED = f"{SECONDARY}, open, closed, broken, ready, empty, full, excellent, good, ancient, ripe"
MOODS = "angry, sick, worried, busy, tired, serious"
OPPOSITES = """hot/cold, big/small, old/new, clean/dirty, open/closed, full/empty, long/short,
 easy/difficult, expensive/cheap, rich/poor, happy/sad, fast/slow, modern/ancient, quiet/noisy,
 funny/boring, beautiful/ugly, wide/narrow, boring/interesting, white/black, red/green"""
VERBS = """
eat=mangiare : food : cni | drink=bere : drink : cni
cook=cucinare : meat, fish, rice, egg, mushroom, vegetable, gnocchi : cni
prepare=preparare : soup, salad, sandwich, cake, coffee, tea, gnocchi, pizza, lesson : cni
taste=assaggiare : food, drink : i | order=ordinare : dish, drink, soup, salad, fish, gnocchi : n
cut=tagliare : bread, cheese, cake, meat, tomato, onion, lemon, apple, tree, ham : ni
read=leggere : text : cni
write=scrivere : letter, postcard, message, poem, story, article, book : cni
buy=comprare : shopping, house : i | sell=vendere : shopping, house : a
pay for=pagare : coffee, wine, beer, pizza, ticket, book, clothes, taxi : i
look for=cercare : lost, hotel, restaurant, job, pharmacy, station : ni
find=trovare : lost, job, mushroom, mistake, answer : e | lose=perdere : lost, match, job : e
forget=dimenticare : key, umbrella, passport, ticket, bag, wallet, word, lesson, gloves, scarf : e
break=rompere : cup, glass, plate, bottle, lamp, mirror, toy, window, chair, phone, guitar : e
steal=rubare : bicycle, car, wallet, bag, phone, camera, ring, suitcase, motorbike : ea
bring=portare : fruit, dish, wine, gift, flower, umbrella, chair, guitar, ball, map, cup, glass : i
take=prendere : transport, umbrella, bag, key, map, coat, book, suitcase, pen : i
use=usare : phone, computer, knife, dictionary, map, camera, bicycle, pen, pencil : hi
open=aprire : door, window, box, bottle, suitcase, letter, bag, gift, wardrobe, umbrella : i
close=chiudere : door, window, box, suitcase, bag, wardrobe, umbrella, shop, book : i
wash=lavare : shirt, dress, trousers, jumper, kitchenware, fruit, car, dog, bicycle, towel : hni
clean=pulire : indoors, house, table, window, mirror, shoes, boots, fish, garden, car : hni
iron=stirare : shirt, dress, skirt, trousers, tie, towel : hni | wear=indossare : clothes : hn
try on=provare : clothes : i
choose=scegliere : clothes, dish, wine, book, film, gift, hotel, restaurant, flower, song
see=vedere : people, animal, building, open air, sea, river, bridge, vehicle, transport, tree, film
look at=guardare : photo, map, sea, mountain, flower, bird, lake, clock, animal, tower : ni
watch=guardare : film, match : cni
listen to=ascoltare : song, radio, teacher, singer, bird, lesson, story : hni
hear=sentire : song, bird, dog, child, train, guitar, piano, wolf
play=suonare : instrument, song : hni
paint=dipingere : flower, tree, house, boat, sea, lake, horse, castle, door, island, bridge : n
draw=disegnare : animal, tree, house, flower, map, boat, castle : cni
know=conoscere : public, kid, city, village, song, story, poem, restaurant, island : sd
love=amare : sea, mountain, city, garden, pet, island, job, village, house : sd
want=volere : food, drink, clothes, thing, device, vehicle, house : s
need=avere bisogno di : doctor, lawyer, friend, thing, coat, car, job, phone, hotel, nurse : s
have=avere : clothes, pet, thing, device, vehicle, house, garden, problem, idea, question : s
understand=capire : question, answer, problem, lesson, word, story, poem, mistake, film
learn=imparare : word, song, poem, game, job : ni
study=studiare : lesson, word, poem, problem, map : hni
remember=ricordare : word, song, story, dream, answer, film, trip : sd
explain=spiegare : problem, lesson, word, question, game, mistake, poem, answer : i
tell=raccontare : story, secret : i | answer=rispondere a : question, letter, message : i
talk about=parlare di : film, book, trip, job, problem, exam, match, idea, people : n
think about=pensare a : problem, exam, trip, job, question, match, answer, friend : n
meet=incontrare : people | help=aiutare & call=chiamare & greet=salutare : people : hi
invite=invitare & thank=ringraziare : people : i | visit=visitare : sight
wait for=aspettare : people, train, bus, taxi, plane, ship, letter, answer : ni
follow=seguire : people, dog, street, river, wolf : n | hug=abbracciare : kid, family, friend : i
drive=guidare : car, bus, taxi : ha | park=parcheggiare : car, motorbike : ahi
repair=riparare : device, vehicle, lamp, chair, door, window, umbrella, toy, bed, table : na
build=costruire : house, bridge, boat, castle, tower, school, hospital, church, theatre : na
hide=nascondere : hidden : i | turn on=accendere : lamp, radio, television, computer : i
turn off=spegnere : lamp, radio, television, computer, phone : i
win=vincere : match, game, trip : e
finish=finire : book, letter, exam, job, lesson, article, sandwich, game, soup : e
pick=raccogliere : flower, apple, strawberry, mushroom, cherry, pear, orange, lemon, rose : ni
plant=piantare : tree, rose, flower, tomato, potato, onion : ni
feed=dare da mangiare a : pet, bird, cow, duck, monkey, lion, elephant, bear, squirrel : hi
miss=perdere : train, bus, plane, ship, lesson : e
cross=attraversare : street, square, bridge, river, park, village
"""
VERB_GROUPS = """
somewhere: buy, find, lose, meet, see, hide, forget, park, learn, choose, sell, break
anything: eat, drink, cook, prepare, read, write, buy, sell, order, want, study, learn, find
everyday: eat, drink, cook, read, write, buy, wash, clean, prepare, study, iron, repair, cut, open,
 sell
losing: lose, sell, forget, hide, break, find
chain: buy, find, take, bring, choose, prepare, write, see, open, meet, help
"""
CHAINS = """
buy : eat, drink, read, wear, cook, sell, hide, taste, try on, plant, open
find : take, open, sell, hide, use | take : open, use, read, close | see : buy, call
bring : eat, taste, open, hide, play | choose : buy, wear, read, try on, pay for | open : close
prepare : eat, drink, taste, explain | write : send, read, hide, finish | see : draw, paint, greet
meet : greet, thank, invite, hug, help | help : thank, hug
"""
GIVING = """
give=dare : gift, flower, book, key, apple, biscuit, ring, map, ticket, toy, photo, umbrella
show=mostrare : photo, letter, house, garden, room, map, dress, passport, message, castle, ring
lend=prestare : book, car, bicycle, umbrella, pen, dictionary, coat, guitar, camera, suitcase
send=mandare : letter, postcard, message, gift, photo, flower, book, ticket, article
offer=offrire : coffee, tea, wine, beer, cake, biscuit, apple, ice cream, job, sandwich
"""
PLAIN_VERBS = """
motion: go=andare | come=venire | return=tornare
place: work=lavorare | study=studiare | eat=mangiare | sleep=dormire | play=giocare
 | walk=passeggiare | swim=nuotare | rest=riposare | wait=aspettare | dance=ballare | run=correre
 | sing=cantare | go for a walk=fare una passeggiata
fun: have fun=divertirsi | get bored=annoiarsi | meet {own} friends=incontrare gli amici
deed: work=lavorare | sleep=dormire | dance=ballare | sing=cantare | cook=cucinare | laugh=ridere
 | cry=piangere | smile=sorridere | run=correre | rest=riposare | study=studiare
 | watch television=guardare la televisione | have lunch=pranzare | have a shower=fare la doccia
 | do the shopping=fare la spesa
event: arrive=arrivare | come home=tornare a casa | go out=uscire | leave=partire | fall=cadere
 | come in=entrare | call=telefonare | wake up=svegliarsi | stop=fermarsi
morning: get up=alzarsi | wake up=svegliarsi | get dressed=vestirsi | leave home=uscire di casa
 | have breakfast=fare colazione | put on {own} coat=mettersi il cappotto | get ready=prepararsi
 | start work=cominciare a lavorare | have a shower=fare la doccia
evening: fall asleep=addormentarsi | go to bed=andare a letto | take off {own} shoes=togliersi le
 scarpe | have dinner=cenare | come home=tornare a casa | do {own} homework=fare i compiti
 | wash {own} hands=lavarsi le mani | brush {own} teeth=lavarsi i denti
state: be hungry=avere fame | be thirsty=avere sete | be sleepy=avere sonno | be cold=avere freddo
 | be hot=avere caldo | be in a hurry=avere fretta | be right=avere ragione
 | be late=essere in ritardo | be afraid=avere paura | have a headache=avere mal di testa
career: work=lavorare | study=studiare
home: live=abitare
say: say=dire
know: know=sapere
"""
PLACES = """
at home=a casa : work, study, eat, sleep, play, rest, wait, dance, sing
at school=a scuola : study, eat, play, sing | at the office=in ufficio : work, eat, wait
at the station=alla stazione : work, wait | at the restaurant=al ristorante : eat, work
at the market=al mercato : work, wait | in the park=al parco : walk, go for a walk, play, run, rest,
 wait, eat, fun
on the beach=in spiaggia : sleep, rest, walk, go for a walk, play, run, fun
in the kitchen=in cucina : eat, work, sing | at the seaside=al mare : live, rest, swim, fun
in the garden=in giardino : play, sleep, rest, work, fun | in church=in chiesa : sing
at the library=in biblioteca : study, work | at the university=all'università : study, work, eat
in hospital=in ospedale : work, sleep | at the hotel=in albergo : sleep, work, wait
at the theatre=a teatro : work, dance, sing, fun | at the cinema=al cinema : work, fun
at the bar=al bar : eat, work, wait, fun | at the bank=in banca : work, wait
in the mountains=in montagna : live, walk, go for a walk, rest, sleep, fun
 | at the zoo=allo zoo : work, fun
in the countryside=in campagna : live, walk, go for a walk, work, rest, fun
in the city centre=in centro : live, work, walk, go for a walk, eat | at the stadium=allo stadio :
 play, work, run
in the swimming pool=in piscina : swim, play, fun | at the post office=alla posta : work, wait
at the airport=all'aeroporto : work, wait, sleep, eat | at the dentist's=dal dentista : wait
at the bus stop=alla fermata dell'autobus : wait | at the pharmacy=in farmacia : work, wait
at the supermarket=al supermercato : work | at the doctor's=dal medico : wait
"""
SPOTS = """
cup, plate, glass, bottle, fruit, text, key, phone, lamp, knife, spoon, wallet : on=su : table
cat, text, hat, bag, coat, jacket, blanket, towel, scarf, guitar : on=su : chair, bed, sofa
cat, dog, ball, toy, shoes, boots, bag, box, suitcase, mouse : under=sotto : table, chair, bed, sofa
dog, cat, horse, bicycle, chair, table, ball, child, cow : under=sotto : tree
key, pen, letter, wallet, photo, ring, phone, ticket, passport, gift : in=in : bag, box, backpack
clothes, suitcase, blanket, towel, umbrella, guitar : in=in : wardrobe
bird, butterfly, squirrel, fox, flower, tree, cat, bicycle : in=in : garden, park
building : near=vicino a : station, school, church, museum, castle, park, square, river, beach, lake
tree, car, taxi, motorbike, policeman, dog, bus : in front of=davanti a : building
tree, garden, lake, park, street, horse, bicycle : behind=dietro : house, church, school, castle
"""
HE = """Luca | Paolo | Marco | Giovanni | Pietro | Matteo | Antonio | Franco | Roberto | Davide
 | Stefano | Giorgio | Carlo | Enrico | Tom | James"""
SHE = """Maria | Anna | Giulia | Laura | Chiara | Elena | Sara | Francesca | Paola | Silvia | Lucia
 | Martina | Irene | Teresa | Emma | Alice"""
CITIES = """Rome=Roma | Milan=Milano | Venice=Venezia | Florence=Firenze | Naples=Napoli
 | Turin=Torino | Bologna=Bologna | Verona=Verona | Genoa=Genova | Paris=Parigi | London=Londra
 | Berlin=Berlino | Madrid=Madrid | Lisbon=Lisbona | Vienna=Vienna | Athens=Atene"""
COUNTRIES = """Italy=Italia | France=Francia | Spain=Spagna | Germany=Germania | Greece=Grecia
 | England=Inghilterra | Portugal=Portogallo | Switzerland=Svizzera | Austria=Austria"""
PHRASES = """
past: yesterday=ieri | yesterday morning=ieri mattina | last night=ieri sera
 | an hour ago=un'ora fa | last week=la settimana scorsa | last month=il mese scorso
 | last year=l'anno scorso | two days ago=due giorni fa | three weeks ago=tre settimane fa
 | this morning=questa mattina | last summer=l'estate scorsa
future: tomorrow=domani | tomorrow morning=domani mattina | next week=la settimana prossima
 | next month=il mese prossimo | this evening=questa sera | soon=presto
habit: every day=ogni giorno | every morning=ogni mattina | every evening=ogni sera
 | in the morning=la mattina | in the evening=la sera | every week=ogni settimana
now: now=adesso | at the moment=in questo momento
snow time: in winter=in inverno | in December=a dicembre | in January=a gennaio
 | in February=a febbraio
season: in spring=in primavera | in summer=in estate | in autumn=in autunno | in winter=in inverno
ache: a headache=mal di testa | a stomach ache=mal di stomaco | a toothache=mal di denti
am: seven=sette | eight=otto | nine=nove | ten=dieci
pm: five=cinque | six=sei | seven=sette | eight=otto
language: Italian=italiano | English=inglese | French=francese | Spanish=spagnolo | German=tedesco
 | Portuguese=portoghese | Greek=greco
weekday: Monday=lunedì | Tuesday=martedì | Wednesday=mercoledì | Thursday=giovedì | Friday=venerdì
 | Saturday=sabato | Sunday=domenica
month: January=gennaio | February=febbraio | March=marzo | April=aprile | May=maggio | June=giugno
 | July=luglio | August=agosto | September=settembre | October=ottobre | November=novembre
 | December=dicembre
number: two=due | three=tre | four=quattro | five=cinque | six=sei | seven=sette | eight=otto
 | nine=nove | ten=dieci | eleven=undici | twelve=dodici | fifteen=quindici | twenty=venti
 | thirty=trenta | forty=quaranta
few: two=due | three=tre | four=quattro | five=cinque | six=sei
near past: yesterday=ieri | this morning=questa mattina | on Monday=lunedì | on Friday=venerdì
near future: tomorrow=domani | this evening=questa sera | on Saturday=sabato | on Sunday=domenica
outing: to the cinema=al cinema | to the theatre=a teatro | to the park=al parco
 | to school=a scuola | to the market=al mercato | to the restaurant=al ristorante
 | to the beach=in spiaggia | to the stadium=allo stadio | to the library=in biblioteca
 | to the bar=al bar
port: Genoa=Genova | Venice=Venezia | Naples=Napoli | Lisbon=Lisbona | Athens=Atene
long ago: every summer=ogni estate | every winter=ogni inverno | every year=ogni anno
every: every Sunday=ogni domenica | every Saturday=ogni sabato | every week=ogni settimana
land: in the city=della città | in Italy=d'Italia | in the world=del mondo
skill: swim=nuotare | cook=cucinare | dance=ballare | sing=cantare | drive=guidare
his job: a doctor=medico | a teacher=insegnante | a nurse=infermiere | a cook=cuoco
 | a writer=scrittore | a painter=pittore | a singer=cantante | a lawyer=avvocato
 | a musician=musicista | a journalist=giornalista | a dentist=dentista | an engineer=ingegnere
 | a psychologist=psicologo | a photographer=fotografo | a farmer=contadino | an actor=attore
her job: a doctor=medico | a teacher=insegnante | a nurse=infermiera | a cook=cuoca
 | a writer=scrittrice | a painter=pittrice | a singer=cantante | a lawyer=avvocato
 | a musician=musicista | a journalist=giornalista | a dentist=dentista | an engineer=ingegnere
 | a psychologist=psicologa | a photographer=fotografa | a farmer=contadina | an actress=attrice
somebody: who=chi
liker: I like=mi | you like=ti | he likes=gli | she likes=le | we like=ci | they like=gli
doubter: I do not like=mi | you do not like=ti | he does not like=gli | she does not like=le
 | we do not like=ci | they do not like=gli
asked liker: do you like=ti | does he like=gli | does she like=le | do they like=gli
former liker: I liked=mi | you liked=ti | he liked=gli | she liked=le | we liked=ci | they liked=gli
"""
CLOCKS = "{} o'clock={} | {} thirty={} e mezza | a quarter past {}={} e un quarto"
POSSESSIVES = """my mio mia miei mie | your tuo tua tuoi tue | his suo sua suoi sue
 | our nostro nostra nostri nostre | your vostro vostra vostri vostre | their loro loro loro loro"""

# How often | what fills the gaps | English | Italian. A gap is a fixed phrase; somebody; a noun
# after its determiners (`*`: it may be plural, `+`: with an adjective, `-`: without), perhaps after
# the verb that governs it (`want>`); a verb with its manners, its subject and the determiners of
# its object; or something made from an earlier gap, as `adj 0` is an adjective said of gap 0.
# `{0:a}` is gap 0 after the preposition `a`, `{0:o}` the ending that agrees with it; `Phrase` and
# `Clause` tell the other forms.
TEMPLATES = """
20 | act any; time 0 | {0} {1}. | {0} {1}.
8 | act timed; time 0 | {1} {0}. | {1} {0}.
6 | other; act open 0; time 1 | {1:q} {2}? | {1} {2}?
4 | other; act plain,now,past,want 0 | Why {1:q}? | Perché {1}?
3 | you/you/he/she/they; act once,future+ 0 the/this/that/a/own | When {1:q}? | Quando {1}?
2 | you/you/he/she/they; somewhere once 0 the/this/that/own | Where {1:q}? | Dove {1}?
3 | somebody; act plain,past+,past+,future+,want 0; time 1 | {1} {2}? | {1} {2}?
4 | other; anything plain+,past+,past+,future+,now+,want+ 0; time 1 | What {1:q} {2}?
 | Cosa {1:i} {2}?
2 | other; place plain+,plain+,past+,future+ 0 | Where {1:q}? | Dove {1:i}?
2 | the carrier; city | When does {0} to {1} leave? | Quando parte {0} per {1}?
3 | motion habit,often,plain,must,can,used; outing; time 0 | {0} {1} {2}. | {0} {1} {2}.
3 | motion past,past,future,want,now; to; time 0 | {0} {1} {2}. | {0} {1} {2}.
2 | motion past+,future+; to; time 0 | {2} {0} {1}. | {2} {0} {1}.
2 | other; motion open 0; to; time 1 | {1:q} {2} {3}? | {1} {2} {3}?
3 | home plain,plain,past,want,future; in | {0} {1}. | {0} {1}.
1 | home plain,past,want,future; where 0 | {0} {1}. | {0} {1}.
2 | career regular; in; time 0 | {0} {1} {2}. | {0} {1} {2}.
6 | place regular; where 0; time 0 | {0} {1} {2}. | {0} {1} {2}.
2 | other; place open 0; where 1; time 1 | {1:q} {2} {3}? | {1} {2} {3}?
3 | fun habit,often,past,past,future,used,now; where 0; time 0 | {0} {1} {2}. | {0} {1} {2}.
4 | morning habit,often,plain,want,must,can; early | {0} at {1}. | {0} {1:a}.
4 | evening habit,often,plain,want,must,can; late | {0} at {1}. | {0} {1:a}.
2 | morning past+; near past; early | {1} {0} at {2}. | {1} {0} {2:a}.
2 | evening past+; on day; late | {1} {0} at {2}. | {1} {0} {2:a}.
1 | morning past; early; near past | {0} at {1} {2}. | {0} {1:a} {2}.
1 | evening future+; late; near future | {0} at {1} {2}. | {0} {1:a} {2}.
1 | morning habit,past,future,want,must,can; time 0 | {0} {1}. | {0} {1}.
1 | evening habit,past,future,want,must,can; time 0 | {0} {1}. | {0} {1}.
2 | state plain,past | {0}. | {0}.
1 | other; state plain+ 0 | {1:q}? | {1}?
3 | name; act childhood 0 | As a child, {1}. | Da bambin{0:o} {1}.
1 | long ago; motion imperfect; abroad | {0} {1} {2}. | {0} {1} {2}.
1 | every; motion imperfect; outing | {0} {1} {2}. | {0} {1} {2}.
5 | the/the/this/that/own* described; adj 0 | {0} {0:is} {1}. | {0} {0:è} {1}.
2 | the/this/own* described; graded 0 | {0} {0:is} very {1}. | {0} {0:è} molto {1}.
1 | the/this/own* described; graded 0 | {0} {0:is} too {1}. | {0} {0:è} troppo {1}.
2 | the/this/that/own* described; adj 0 | {0} {0:is} not {1}. | {0} non {0:è} {1}.
2 | the/this/own* container, hall, beach, square, room; adj 0 | {0} {0:is} {1}. | {0} {0:è} {1}.
2 | the/own* described; adj 0 | {0} {0:was} {1}. | {0} {0:era} {1}.
2 | the/this/own* described; adj 0 | {0:is} {0} {1}? | {0} {0:è} {1}?
3 | shown; adj 0 | {0} {0:is} {1}. | {0} {0:è} {1}.
2 | shown; graded 0 | {0} {0:was} very {1}. | {0} {0:era} molto {1}.
1 | shown; said 0 angry | Why {0:is} {0} {1}? | Perché {0} {0:è} {1}?
1 | shown; said 0 tired | Why {0:is} {0} so {1}? | Perché {0} {0:è} così {1}?
2 | what+ described | {0}! | {0}!
4 | the/the/this/own* described; adj 0; opposite 1 0 | {0:is} {0} {1}? No, {0:it} {0:is} {2}.
 | {0} {0:è} {1}? No, {0:è} {2}.
2 | the/this described; rival 0; graded 0 1 | {0} {0:is} {2:er} than {1}.
 | {0} {0:è} più {2} {1:di}.
2 | the/this described; rival 0; graded 0 1 | {0:is} {0} {2:er} than {1}?
 | {0} {0:è} più {2} {1:di}?
2 | who; who; graded 0 1 | {0} {0:is} {2:er} than {1}. | {0} {0:è} più {2} {1:di}.
1 | who; who; graded 0 1 | {0} is as {2} as {1}. | {0} è {2} come {1}.
1 | who; who; graded 0 1 | {0} is less {2} than {1}. | {0} è meno {2} {1:di}.
2 | the- building, outdoors; graded 0; land | This is the {1:est} {0:bare} {2}.
 | Quest{0:o} è {0} più {1} {2}.
2 | the-* clothes, furniture, device; graded 0 | {0:this} {0:is} the {1:est} {0:bare} in the shop.
 | Quest{0:o} {0:è} {0} più {1} del negozio.
3 | a/a/number/many* item; spot 0 | There {0:is} {0} {1}. | {0:c'è} {0} {1}.
1 | a/number* item; spot 0 | {0:is} there {0} {1}? | {0:c'è} {0} {1}?
2 | the/own* item; spot 0 | {0} {0:is} {1}. | {0} {0:è} {1}.
3 | the/own* item; spot 0 | Where {0:is} {0}? {0:it} {0:is} {1}. | {0:dov'è} {0}? {0:è} {1}.
6 | I/I/we/he/she/name; act past,past,plain,want,can,must,future,already 0 the/this/that/own; object
 1; again 1; time 1 | {2}? {3} {4}. | {2}? {3} {4}.
3 | I/I/we/he/she/name; losing past+ 0 the; object 1; again 1; time 1 | Where {2:is} {2}? {3} {4}.
 | {2:dov'è} {2}? {3} {4}.
4 | you; act plain+,past+,future+,want+ 0 the/this/that/own; again 1 I; time 1
 | {1:q}? Yes, {2} {3}. | {1}? Sì, {2} {3}.
2 | you; act plain+,past+,want+ 0 the/this/that/own; denied 1 I | {1:q}? No, {2}. | {1}? No, {2}.
3 | someone; chain past+ 0 the/the/a/own; then 1 | {1} and {2}. | {1} e {2}.
3 | someone; chain past+ 0 the/the/a/own; I/we/name/name/who; unlike 1 2 | {1}, but {3}.
 | {1}, ma {3}.
3 | give any; who; time 0 | {0} to {1} {2}. | {0} {1:a} {2}.
3 | hand any - the/the/a/a/this/that/some; time 0 | {0} {1}. | {0} {1}.
2 | other; hand open 0 the/the/a/a/this/some; time 1 | {1:q} {2}? | {1} {2}?
1 | you; hand can+ 0 the/the/a/this/some; name | {1:q}, {2}? | {1}, {2}?
3 | liker; like>generic common | {0} {1}. | {0} {1:piace} {1}.
2 | doubter; like>generic common | {0} {1}. | non {0} {1:piace} {1}.
2 | liker; like>the/this/that* liked | {0} {1}. | {0} {1:piace} {1}.
2 | doubter; like>the/this/that* liked | {0} {1}. | non {0} {1:piace} {1}.
2 | asked liker; like>the/this/that/generic* liked | {0} {1}? | {0} {1:piace} {1}?
2 | who; like>the/this/generic* liked | {0} likes {1}. | {0:a} {1:piace} {1}.
2 | who; like>the/this/generic* liked | {0} does not like {1}. | {0:a} non {1:piace} {1}.
2 | former liker; like>the/this/that* dish, work, soup, wine, hotel, restaurant, dress, gift
 | {0} {1}. | {0} {1:è} piaciut{1:o} {1}.
1 | liker; skill | {0} to {1}. | {0} piace {1}.
1 | who; skill | {0} does not like to {1}. | {0:a} non piace {1}.
1 | who; skill; skill | {0} knows how to {1}, but not how to {2}. | {0} sa {1}, ma non sa {2}.
1 | name; skill | Do you know how to {1}, {0}? | Sai {1}, {0}?
3 | the/the/that* person; relative 0; act past+,past+,plain+ 1; adj 0 | {2} {0:is} {3}.
 | {2} {0:è} {3}.
2 | the* person; relative 0; place plain+,past+ 1; where 2; adj 0 | {2} {3} {0:is} {4}.
 | {2} {3} {0:è} {4}.
4 | I/you/we/she/name/name/name; act past+,past+,now+ 0 the; object 1; alone 1; adj 2
 | {2} that {3} {2:is} {4}. | {2} che {3} {2:è} {4}.
2 | someone; act while 0 the/the/a/own; I/we/name/name/name/who/who; act while 2 the/the/a/own
 | While {1}, {3}. | Mentre {1}, {3}.
2 | someone; deed while 0; I/we/name/name/name/who/who; act while 2 the/the/a/own
 | While {1}, {3}. | Mentre {1}, {3}.
2 | shown; event past+ 0; I/we/name/name/name/who/who; act while 2 the/the/a/own | When {1}, {3}.
 | Quando {1}, {3}.
2 | shown; event past+ 0; I/we/name/name/name/who/who; deed while 2 | {3} when {1}.
 | {3} quando {1}.
1 | name; everyday plain+ 0 the/a/own; name; everyday plain+ 2 the/a/own | {1} and {3}. | {1} e {3}.
2 | name; everyday past+ 0 the/a/own; name; everyday past+ 2 the/a/own | {1} and {3}. | {1} e {3}.
4 | deed regular; time 0 | {0} {1}. | {0} {1}.
2 | event past,past,already,future,want; time 0 | {0} {1}. | {0} {1}.
1 | who; said 0 tired | {0} went to bed because {0:it} was {1}. | {0} è andat{0:o} a letto perché
 era {1}.
1 | who | {0} is going to bed because {0:it} is sleepy. | {0} sta andando a letto perché ha sonno.
1 | who; said 0 sick | {0} stayed at home because {0:it} was {1}. | {0} è restat{0:o} a casa perché
 era {1}.
1 | who; said 0 busy | {0} does not go out because {0:it} is {1}. | {0} non esce perché è {1}.
1 | who; said 0 sick | {0} did not come because {0:it} was {1}. | {0} non è venut{0:o} perché era
 {1}.
1 | who; said 0 sad | {0} is crying because {0:it} is {1}. | {0} sta piangendo perché è {1}.
1 | who | {0} is running because {0:it} is late. | {0} sta correndo perché è in ritardo.
1 | who; said 0 worried | {0} did not sleep because {0:it} was {1}. | {0} non ha dormito perché era
 {1}.
1 | who; said 0 tired; outing | When {0} is {1}, {0:it} does not go {2}.
 | Quando {0} è {1}, non va {2}.
1 | who | When {0} is hungry, {0:it} goes home. | Quando {0} ha fame, va a casa.
1 | who; said 0 busy; outing | If {0} is not {1}, {0:it} will go {2}. | Se {0} non è {1}, andrà {2}.
1 | outing; near future | If it rains {1}, we will not go {0}. | Se piove {1}, non andremo {0}.
3 | act order - the/this/that/own | {0}, please! | {0}, per favore!
2 | act order - the/this/that/own; name | {0}, {1}! | {0}, {1}!
1 | name; act order - the/own | {0}, {1}, please. | {0}, {1}, per favore.
1 | luca; his job | {0} is {1}. | {0} è {1}.
1 | maria; her job | {0} is {1}. | {0} è {1}.
1 | luca; his job; in | {0} is {1} and works {2}. | {0} è {1} e lavora {2}.
1 | maria; her job; in | {0} is {1} and works {2}. | {0} è {1} e lavora {2}.
1 | luca; his job | {0} wants to become {1}. | {0} vuole diventare {1}.
1 | maria; her job | {0} wants to become {1}. | {0} vuole diventare {1}.
1 | luca; his job | Is {0} {1}? No, he is not {1}. | {0} è {1}? No, non è {1}.
1 | maria; her job; in | Was {0} {1} {2}? | {0} era {1} {2}?
2 | who; of 0 owned | {1:this} {1:is} {1}. | Quest{1:o} {1:è} {1}.
2 | who; of 0 owned; adj 1 | {1} {1:is} {2}. | {1} {1:è} {2}.
1 | who; of 0 owned | {1:that} {1:is} not {1}. | Quell{1:o} non {1:è} {1}.
1 | someone; say plain+ 0; the* described; adj 2 | {1} that {2} {2:is} {3}. | {1} che {2} {2:è} {3}.
1 | someone; know plain 0; the* described; adj 2 | {1} that {2} {2:is} {3}. | {1} che {2} {2:è} {3}.
1 | someone; know past+ 0; the* described; adj 2 | {1} that {2} {2:was} {3}.
 | {1} che {2} {2:era} {3}.
1 | someone; say past+ 0; the* described; adj 2 | {1} that {2} {2:was} {3}.
 | {1} che {2} {2:era} {3}.
1 | the/that/own dog, cat; eat>the meat, fish, bread | {0} is eating {1}. | {0} sta mangiando {1}.
1 | the/that/own dog, cat, horse, cow, bird, lion, elephant; drink>the water
 | {0} is drinking {1}. | {0} sta bevendo {1}.
1 | the/own dog, cat, horse; follow>the/a mouse, bird, rabbit, duck, kid | {0} follows {1}.
 | {0} segue {1}.
1 | the/that wolf, fox, lion, bear; eat>the/a rabbit, bird, duck, mouse | {0} ate {1}.
 | {0} ha mangiato {1}.
1 | the/own dog, cat, bird, mouse, horse, fox, squirrel; spot 0 | {0} is sleeping {1}.
 | {0} sta dormendo {1}.
1 | the/own dog, cat, horse, monkey, lion, bird; see>the/a animal, kid, man, woman | {0} sees {1}.
 | {0} vede {1}.
1 | the building | Excuse me, where is {0}? | Scusi, dov'è {0}?
1 | the building | Excuse me, how do I get to {0}? | Scusi, come arrivo {0:a}?
1 | the building | Excuse me, is {0} far from here? | Scusi, {0} è lontan{0:o} da qui?
1 | the building | Excuse me, which bus goes to {0}? | Scusi, quale autobus va {0:a}?
1 | the building; number | {0} is {1} minutes from here. | {0} è a {1} minuti da qui.
2 | a building; the landmark | Is there {0} near {1}? | C'è {0} vicino {1:a}?
2 | the building; the building | {0} is next to {1}. | {0} è accanto {1:a}.
1 | the building; the building | {0} is on the right, opposite {1}. | {0} è a destra, di fronte
 {1:a}.
1 | digits; the building | Bus number {0} goes to {1}. | L'autobus numero {0} va {1:a}.
2 | the carrier; city; clock | {0} to {1} leaves at {2}. | {0} per {1} parte {2:a}.
1 | the ship; port; clock | {0} to {1} leaves at {2}. | {0} per {1} parte {2:a}.
2 | the carrier; city; clock | {0} from {1} arrives at {2}. | {0} da {1} arriva {2:a}.
1 | the carrier; city; date | Does {0} to {1} leave on {2}? | {0} per {1} parte {2}?
1 | the daily; am; on day | {0} opens at {1} {2}. | {0} apre {1:a} {2}.
1 | the daily; said 0 open; am; pm | {0} is {1} from {2} to {3}. | {0} è {1} {2:da} {3:a}.
1 | clock | What time is it? It is {0}. | Che ore sono? Sono {0}.
1 | the event; on day; clock | {0} is {1} at {2}. | {0} è {1} {2:a}.
1 | weekday; date | Today is {0}, {1}. | Oggi è {0} {1:no}.
1 | few; city | {0} tickets to {1}, please. | {0} biglietti per {1}, per favore.
1 | few; clock | I would like a table for {0} at {1}. | Vorrei un tavolo per {0} {1:a}.
1 | look for>a- hotel; in; few | I am looking for {0} {1} for {2} nights.
 | Cerco {0} {1} per {2} notti.
1 | want>a drink | I would like {0}, please. | Vorrei {0}, per favore.
2 | want>a dish; want>a drink | I would like {0} and {1}, please. | Vorrei {0} e {1}, per favore.
1 | want>a warm; bare sweetener; name | Would you like {0} with {1}, {2}? | Vuoi {0} con {1}, {2}?
1 | want>a warm; bare sweetener | I would like {0} without {1}. | Vorrei {0} senza {1}.
1 | want>bare fruit; few | I would like {1} kilos of {0}. | Vorrei {1} chili di {0}.
1 | want>bare poured; name | {1} would like a glass of {0}. | {1} vorrebbe un bicchiere {0:d}.
1 | want>bare warm; name | Would you like a cup of {0}, {1}? | Vuoi una tazza di {0}, {1}?
1 | want>bare sliced; who | {1} wants a slice of {0}. | {1} vuole una fetta di {0}.
1 | the* clothes | How much {0:does} {0} cost? | Quanto {0:costa} {0}?
2 | this/that* clothes, thing; digits | {0} {0:costs} {1} euros. | {0} {0:costa} {1} euro.
2 | find>my lost; name | I cannot find {0}, {1}. | Non trovo {0}, {1}.
2 | see>my lost; name | Have you seen {0}, {1}? | Hai visto {0}, {1}?
1 | your singles; name | Is this {0}, {1}? | È quest{0:o} {0}, {1}?
2 | this singles; name | Whose is {0}? It is {1}'s. | Di chi è {0}? È di {1}.
1 | have>bare sibling; few | How many {0} do you have? I have {1}. | Quant{0:o} {0} hai? Ne ho {1}.
1 | prefer>generic- drink; prefer>generic- drink; name | {2} prefers {0} to {1}.
 | {2} preferisce {0} {1:a}.
1 | eat>bare staple; eat>bare staple; who | {2} eats more {0} than {1}.
 | {2} mangia più {0} che {1}.
1 | have>bare staple; have>bare drink | We have no {0} and no {1}. | Non abbiamo né {0} né {1}.
1 | give>the singles; name | Give me {0}, please, {1}. | Dammi {0}, per favore, {1}.
1 | name | Hello, {0}! How are you? | Ciao, {0}! Come stai?
1 | name | Good morning, {0}! Did you sleep well? | Buongiorno, {0}! Hai dormito bene?
1 | name; on day | Goodbye, {0}! See you {1}! | Arrivederci, {0}! Ci vediamo {1}!
1 | name; meeting; clock | See you {1} at {2}, {0}! | Ci vediamo {1} {2:a}, {0}!
1 | name; outing; near future | {0}, shall we go {1} {2}? | {0}, andiamo {1} {2}?
1 | outing; clock | Let's go {0} at {1}! | Andiamo {0} {1:a}!
1 | name; in | My name is {0} and I live {1}. | Mi chiamo {0} e abito {1}.
1 | name; from | Hello! I am {0} and I come {1}. | Ciao! Sono {0} e vengo {1}.
1 | name; in; year | {0} was born {1} in {2}. | {0} è nat{0:o} {1} {2:in}.
1 | name; date; in | {0} was born on {1} {2}. | {0} è nat{0:o} {1} {2}.
2 | who; from; in | {0} comes {1}, but {0:it} lives {2}. | {0} viene {1}, ma abita {2}.
2 | name; maria | {0}, this is my friend {1}. | {0}, questa è la mia amica {1}.
2 | name; luca | {0}, this is my friend {1}. | {0}, questo è il mio amico {1}.
1 | maria; in | My friend {0} lives {1}. | La mia amica {0} abita {1}.
1 | luca; in | My friend {0} lives {1}. | Il mio amico {0} abita {1}.
1 | name; number | {0} is {1} years old. | {0} ha {1} anni.
1 | name | How old are you, {0}? | Quanti anni hai, {0}?
1 | who; date | {0}'s birthday is on {1}. | Il compleanno {0:di} è {1}.
1 | who; language | {0} speaks {1} very well. | {0} parla molto bene {1}.
1 | name; language | Do you speak {1}, {0}? | Parli {1}, {0}?
1 | your kin | What is {0}'s name? | Come si chiama {0}?
1 | who; ache | {0} has {1}. | {0} ha {1}.
1 | name; meeting | Wait for me {1}, {0}! | Aspettami {1}, {0}!
1 | in | It is raining {0}. | Sta piovendo {0}.
1 | in; near past | It rained {0} {1}. | Ha piovuto {0} {1}.
1 | in; near past | It was very cold {0} {1}. | Faceva molto freddo {0} {1}.
1 | in; near future | It will rain {0} {1}. | Pioverà {0} {1}.
1 | in | It will rain {0} in two days. | Pioverà {0} tra due giorni.
1 | in; snow time | It often snows {0} {1}. | Nevica spesso {0} {1}.
1 | in; season | Is it cold {0} {1}? | Fa freddo {0} {1}?
1 | in | What is the weather like {0} today? | Che tempo fa oggi {0}?
1 | in; degrees | It is {1} degrees {0} today. | Oggi ci sono {1} gradi {0}.
1 | in | It is sunny {0} today. | Oggi c'è il sole {0}.
"""

# Sentences of the grammar that stand in no split, to be shown to a model as new ones.
SHOWCASE = """
The old doctor does not see the red house. | Il vecchio medico non vede la casa rossa.
The young women bought the white dresses yesterday.
 | Le giovani donne hanno comprato i vestiti bianchi ieri.
Where are the keys? I lost them yesterday. | Dove sono le chiavi? Le ho perse ieri.
Maria is taller than her brother. | Maria è più alta di suo fratello.
I like fresh strawberries. | Mi piacciono le fragole fresche.
This coat? I want to buy it tomorrow. | Questo cappotto? Voglio comprarlo domani.
Excuse me, where is the old castle? | Scusi, dov'è il vecchio castello?
The film that Anna watched is interesting. | Il film che Anna ha guardato è interessante.
When Maria arrived, the child was eating an apple.
 | Quando Maria è arrivata, il bambino mangiava una mela.
My father gets up at six thirty. | Mio padre si alza alle sei e mezza.
There are two black cats under the table. | Ci sono due gatti neri sotto il tavolo.
"""

# Italian forms that no rule gives: presents, stems of the imperfect and the future, participles.
PRESENTS = """
avere: ho hai ha abbiamo avete hanno | essere: sono sei è siamo siete sono
andare: vado vai va andiamo andate vanno | venire: vengo vieni viene veniamo venite vengono
fare: faccio fai fa facciamo fate fanno | dare: do dai dà diamo date danno
stare: sto stai sta stiamo state stanno | bere: bevo bevi beve beviamo bevete bevono
uscire: esco esci esce usciamo uscite escono | dire: dico dici dice diciamo dite dicono
potere: posso puoi può possiamo potete possono | volere: voglio vuoi vuole vogliamo volete vogliono
dovere: devo devi deve dobbiamo dovete devono | sapere: so sai sa sappiamo sapete sanno
scegliere: scelgo scegli sceglie scegliamo scegliete scelgono
spegnere: spengo spegni spegne spegniamo spegnete spengono
raccogliere: raccolgo raccogli raccoglie raccogliamo raccogliete raccolgono
togliere: tolgo togli toglie togliamo togliete tolgono
"""
STEMS = "fare: face | dire: dice | bere: beve"
FUTURES = """essere: sar | avere: avr | andare: andr | venire: verr | fare: far | dare: dar | dire:
 dir
 | stare: star | bere: berr | potere: potr | volere: vorr | dovere: dovr | vedere: vedr | cadere:
 cadr"""
PARTICIPLES = """essere: stato | venire: venuto | fare: fatto | dire: detto | bere: bevuto |
 scegliere: scelto
 | spegnere: spento | raccogliere: raccolto | togliere: tolto | rispondere: risposto | correre:
 corso
 | prendere: preso | perdere: perso | leggere: letto | scrivere: scritto | vedere: visto
 | aprire: aperto | chiudere: chiuso | rompere: rotto | mettere: messo | dipingere: dipinto
 | conoscere: conosciuto | vincere: vinto | offrire: offerto | piangere: pianto | ridere: riso
 | sorridere: sorriso | nascondere: nascosto | accendere: acceso | piacere: piaciuto"""
WITH_ISC = "capire finire pulire preferire costruire"
WITH_ESSERE = "essere andare venire tornare restare arrivare partire uscire cadere entrare piacere"

# English verbs with their past and participle; verbs that double their last letter; adjectives
# that take -er and -est.
ENGLISH_VERBS = """be was been | have had had | do did done | go went gone | come came come
 | see saw seen | eat ate eaten | drink drank drunk | read read read | write wrote written
 | buy bought bought | say said said | sell sold sold | pay paid paid | find found found | lose lost
 lost
 | forget forgot forgotten | break broke broken | steal stole stolen | bring brought brought
 | take took taken | cut cut cut | wear wore worn | choose chose chosen | hear heard heard
 | sing sang sung | draw drew drawn | know knew known | understand understood understood
 | tell told told | think thought thought | meet met met | drive drove driven | build built built
 | hide hid hidden | win won won | feed fed fed | give gave given | show showed shown
 | lend lent lent | send sent sent | put put put | sleep slept slept | swim swam swum
 | run ran run | fall fell fallen | leave left left | get got got | wake woke woken
 | speak spoke spoken"""
DOUBLING = "cut win put get forget swim run stop hug"
WITH_ER = """big small new old young ugly long short tall strong rich poor happy sad kind lazy brave
 angry funny easy clean dirty heavy fast slow hot cold fresh sweet deep wide narrow quiet noisy
 strange busy cheap salty nice"""


# --- Reading the tables ---------------------------------------------------------------------------


@cache
def cells(text: str, mark: str) -> tuple[str, ...]:
    """The parts of a line between marks."""
    return tuple(cell.strip() for cell in text.split(mark))


def lines(table: str) -> list[str]:
    """The lines of a table, each with its continuations."""
    return re.sub(r"\n (?=\S)", " ", table).strip().split("\n")


def sections(table: str) -> list[tuple[str, str]]:
    """The name and the content of each line of a table."""
    return [(name, content) for name, content in (line.split(": ", 1) for line in lines(table))]


@cache
def rows(table: str) -> tuple[str, ...]:
    """The entries of a table in which several may share a line."""
    return tuple(row for line in lines(table) for row in cells(line, "|"))


@cache
def irregular(table: str) -> dict[str, str]:
    """A table of irregular Italian forms, by infinitive."""
    return {verb: form for verb, form in (cells(row, ":") for row in rows(globals()[table]))}


# --- Italian --------------------------------------------------------------------------------------


def italian_plural(word: str, feminine: bool = False) -> str:
    """The regular plural; words that end in a stressed vowel or a consonant do not change."""
    stem, ending = word[:-1], word[-1]
    if ending == "a" and feminine:
        soft = re.search("[^aeiou][cg]i$", stem)
        return stem + "he" if stem[-1] in "cg" else (stem[:-1] if soft else stem) + "e"
    if ending == "o" and stem[-1] in "icg":
        return stem if stem[-1] == "i" else stem + "hi"
    return stem + "i" if ending in "aeo" else word


def agreeing(masculine: str, plural: str = "") -> tuple[str, ...]:
    """The forms of an adjective: masculine, feminine, masculine plural, feminine plural."""
    if masculine in ("blu", "rosa", "viola") or masculine.startswith("di "):
        return (masculine,) * 4
    plural = plural or italian_plural(masculine)
    if masculine.endswith("e"):
        return masculine, masculine, plural, plural
    feminine = masculine[:-1] + "a"
    return masculine, feminine, plural, italian_plural(feminine, feminine=True)


def sound(word: str) -> str:
    """How a word begins, as far as the article before it cares."""
    if word[0].lower() in "aeiou":
        return "vowel"
    return "hard" if re.match("z|y|x|gn|ps|pn|s[^aeiou]", word) else "plain"


def definite(word: str, form: int = 0) -> str:
    """The definite article before `word`, in one of the four forms of an adjective."""
    start = sound(word)
    if start == "vowel" and form < 2:
        return "l'"
    if form % 2:
        return ("la", "le")[form // 2]
    return (("il", "i") if start == "plain" else ("lo", "gli"))[form // 2]


def indefinite(word: str, feminine: bool = False) -> str:
    """The indefinite article before `word`."""
    if feminine:
        return "un'" if sound(word) == "vowel" else "una"
    return "uno" if sound(word) == "hard" else "un"


def contract(preposition: str, article: str) -> str:
    """A preposition with the definite article after it: `di` and `lo` give `dello`."""
    if preposition not in ("a", "di", "da", "in", "su"):
        return f"{preposition} {article}"
    stem = {"di": "de", "in": "ne"}.get(preposition, preposition)
    return stem + {"il": "l", "i": "i", "gli": "gli"}.get(article, "l" + article)


def like_quello(stem: str, article: str) -> str:
    """The form of `quello` or `bello` that stands where `article` would stand."""
    return stem + {"il": "el", "i": "ei", "gli": "egli"}.get(article, "el" + article)


def glue(*words: str) -> str:
    """The Italian words in a row, without a space after an apostrophe."""
    return " ".join(filter(None, words)).replace("' ", "'")


def attach(infinitive: str, ending: str) -> str:
    """The stem of a verb with an ending, spelt so that the stem keeps its sound."""
    stem = infinitive[:-3]
    if infinitive.endswith("are") and stem[-1] in "cg" and ending[0] in "ei":
        return stem + "h" + ending
    if stem[-1] == "i" and (ending[0] == "i" or (ending[0] == "e" and stem[-2] in "cg")):
        return stem[:-1] + ending
    return stem + ending


@cache
def conjugate(infinitive: str, tense: str) -> tuple[str, ...]:
    """The six persons of the present, the imperfect or the future."""
    group = infinitive[-3:]
    if tense == "present":
        if infinitive in irregular("PRESENTS"):
            return tuple(irregular("PRESENTS")[infinitive].split())
        isc = "isc" if infinitive in WITH_ISC.split() else ""
        third, you, they = ("a", "ate", "ano") if group == "are" else ("e", group[0] + "te", "ono")
        endings = (f"{isc}o", f"{isc}i", isc + third, "iamo", you, isc + they)
        return tuple(attach(infinitive, ending) for ending in endings)
    if tense == "future":
        stem = irregular("FUTURES").get(infinitive)
        stem = stem or attach(infinitive, "ir" if group == "ire" else "er")
        return tuple(stem + ending for ending in ("ò", "ai", "à", "emo", "ete", "anno"))
    if infinitive == "essere":
        return ("ero", "eri", "era", "eravamo", "eravate", "erano")
    stem = irregular("STEMS").get(infinitive, infinitive[:-2])
    return tuple(stem + ending for ending in ("vo", "vi", "va", "vamo", "vate", "vano"))


@cache
def participle(infinitive: str, form: int = 0) -> str:
    """The past participle in one of its four forms, in the order of `agreeing`."""
    regular = {"are": "ato", "ere": "uto", "ire": "ito"}[infinitive[-3:]]
    masculine = irregular("PARTICIPLES").get(infinitive, infinitive[:-3] + regular)
    return masculine[:-1] + "oaie"[form]


def gerund(infinitive: str) -> str:
    """The gerund, which with `stare` tells what is going on."""
    stem = infinitive[:-3] + ("a" if infinitive.endswith("are") else "e")
    return irregular("STEMS").get(infinitive, stem) + "ndo"


# --- English --------------------------------------------------------------------------------------


def add_s(word: str) -> str:
    """The English plural of a noun or third person of a verb."""
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(s|x|z|ch|sh|^go|^do)$", word) else "s")


@cache
def english_forms(verb: str) -> tuple[str, str, str, str]:
    """Third person, past, past participle and -ing form."""
    word, blank, rest = verb.partition(" ")
    last = word[-1] if word in DOUBLING.split() else ""
    past = word + ("d" if word.endswith("e") else last + "ed")
    if re.search("[^aeiou]y$", word):
        past = word[:-1] + "ied"
    ing = (word[:-1] if re.search("[^eo]e$", word) and word != "be" else word + last) + "ing"
    known = {row.split()[0]: row.split()[1:] for row in rows(ENGLISH_VERBS)}
    third = "has" if word == "have" else add_s(word)
    past, participle = known.get(word, (past, past))
    third, past, participle, ing = (w + blank + rest for w in (third, past, participle, ing))
    return third, past, participle, ing


def grade(adjective: str, ending: str) -> str:
    """The comparative (`er`) or superlative (`est`) of an English adjective."""
    if adjective not in WITH_ER.split():
        return f"{'more' if ending == 'er' else 'most'} {adjective}"
    if re.search("[^aeiou][aeiou][dgt]$", adjective):
        return adjective + adjective[-1] + ending
    return re.sub("y$", "i", adjective.removesuffix("e")) + ending
