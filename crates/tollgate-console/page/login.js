import { post, submits } from './dom.js';

const form = document.getElementById('log-in');
const wrong = document.getElementById('wrong');

submits(form, async () => {
  try {
    await post('login', { token: form.elements.token.value });
    location.reload();
  } catch (error) {
    wrong.hidden = false;
    wrong.textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
    form.elements.token.select();
  }
});
